"""The last words of a child process, bounded and without its secrets."""

import re
from collections.abc import Iterable

from portico.model.wording import printable

_SHORTEST_SECRET = 6
_NAMED = re.compile(
    r"""((?:token|secret|passw(?:or)?d|passphrase|api_?-?key|access_?-?key|private_?-?key)"""
    r"""["']?\s*[=:]\s*["']?|\b(?:bearer|basic)\s+)[^\s"',;&]{6,}""",
    re.IGNORECASE,
)
"""What a program calls a secret when it prints one."""
_SHAPED = re.compile(
    r"\b(?:sk-|gh[opsu]_|github_pat_|xox[abprs]-|AKIA|eyJ[\w-]{10,}\.)[\w.+/=-]{10,}"
)
"""Keys and tokens that are known by how they look."""
_REASON = re.compile(
    r"panic: |fatal\b|exception in thread |"
    r"(?:uncaught )?[\w.$]*(?:error|exception)(?: [\w\[\]]+)?:",
    re.IGNORECASE,
)
"""How a line begins that says why, for the many programs that print much more after it."""
_FARTHEST = 100
"""How many lines before the end it may stand."""


class StderrTail:
    """Keeps the end of what was written, however much that is."""

    def __init__(self, limit: int = 64 * 1024, secrets: Iterable[str] = ()) -> None:
        self._limit = limit
        # A very short value is no secret, and hiding each "1" would hide the message too.
        long_enough = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        # The longest first: one may be the beginning of another.
        self._secrets = sorted(long_enough, key=len, reverse=True)
        self._data = bytearray()
        self._cut = False

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Take in more; the oldest goes."""
        self._data += data[-self._limit :]
        self._cut = self._cut or len(data) > self._limit
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]
            self._cut = True

    def hide(self, text: str) -> str:
        """The same without what looks like a secret, or is known to be one."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _SHAPED.sub("***", _NAMED.sub(r"\1***", text))

    def tail(self, lines: int = 12, width: int = 400) -> str:
        """The last lines, and one before that says why if none of them does, for a person:
        shortened, secrets hidden, nothing a terminal obeys."""
        cut = self._cut or len(self._data) > self._limit
        text = self._data[-self._limit :].decode(errors="replace")
        text = self.hide(text)
        if cut and self._secrets:
            text = text[len(self._secrets[0]) :]  # it may begin within a secret
        said = [line.rstrip() for line in text.splitlines() if line.strip()][-_FARTHEST:]
        return "\n".join(printable(line)[:width] for line in _telling(said, lines))


def _telling(said: list[str], most: int) -> list[str]:
    """So many lines of the end; a usage or a stack may stand between it and the reason."""
    end = said[-most:]
    if any(map(_REASON.match, end)):
        return end
    reasons = [line for line in said[:-most] if _REASON.match(line)]
    return [reasons[-1], "...", *said[2 - most :]] if reasons else end
