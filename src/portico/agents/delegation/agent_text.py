"""The text of an agent as it comes: a file that the commands of this user read until the task ends.

The result has the whole text; links may change it, so a task behind links has no such file.
"""

import codecs
import os
from contextlib import suppress
from types import TracebackType
from typing import Self

from portico.agents.delegation.stored_delegation import StoredDelegation
from portico.core.state.files import keep_newest, make_private
from portico.library.tasks.mcp.task_host import TaskHost

_MAX_BYTES = 4 << 20
_MAX_FILES = 100
"""Files of tasks that were killed stay until there are more."""


def text_path(folder: str, id: str) -> str:
    """Return the file with the text of a task; `folder` is the state folder."""
    return os.path.join(folder, "agent-text", f"{id}.txt")


class AgentText:
    """Writes the text of one task's agent. Nothing here raises: the result is worth more."""

    def __init__(self, folder: str, id: str) -> None:
        self._path = text_path(folder, id)
        self._file: int | None = None
        self._size = 0

    def __enter__(self) -> Self:
        folder = os.path.dirname(self._path)
        with suppress(OSError):
            make_private(folder)
            keep_newest(_MAX_FILES, folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, 0o600)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            with suppress(OSError):
                os.unlink(self._path)

    def add(self, text: str) -> None:
        """Add what the agent has just written."""
        data = text.encode(errors="replace")
        self._size += len(data)
        if self._file is not None and self._size <= _MAX_BYTES:
            with suppress(OSError):
                os.write(self._file, data)


def shown_text(folder: str, host: TaskHost, stored: StoredDelegation, id: str) -> AgentText | None:
    """Return the text of a task that may be shown as it comes: no link may change it."""
    return None if host.is_linked(stored.call) else AgentText(folder, id)


class AgentTextReader:
    """Reads such a file while it grows."""

    def __init__(self, folder: str, id: str) -> None:
        self._path = text_path(folder, id)
        self._file: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self) -> str:
        """Return the text that was added since the last time."""
        if self._file is None:
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:
                return ""  # the agent has not begun, or its text is not shown
        return self._decoder.decode(os.read(self._file, _MAX_BYTES))

    def close(self) -> None:
        """Stop reading."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
