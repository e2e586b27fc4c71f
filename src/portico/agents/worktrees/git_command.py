"""Runs git: without prompts, settings of others or the variables of this process, within a time.

Everything here waits; call it in a thread.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import IO, Any

from portico.core.model.errors import PorticoError
from portico.upstream.process.environment import clean

TIMEOUT_S = 120.0
_MAX_WORDS = 400
_SETTINGS = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "core.quotePath=false"),
    # These may say something else about a commit than the commit does.
    *("-c", "core.commitGraph=false"),
    *("-c", "core.multiPackIndex=false"),
    # The hard links of a mirror change the times that git would look at.
    *("-c", "core.trustCTime=false"),
)
_VARIABLES = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    # Nothing is fetched: the program for that is one of the repository's settings.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
}
_NO_SETTINGS = {
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}
"""Variables with which git reads neither the user's settings nor those of the machine."""


class GitError(PorticoError):
    """A git command failed, or git is missing."""


class GitFolder:
    """A folder to run git in, and the repository that it belongs to."""

    def __init__(self, folder: str, git_dir: str = "", *, is_users: bool = False) -> None:
        """Without `git_dir`, git finds the repository itself. Git reads the user's settings only
        if it `is_users`."""
        self.folder = folder
        self._place = {"GIT_DIR": git_dir, "GIT_WORK_TREE": folder} if git_dir else {}
        if not is_users:
            self._place |= _NO_SETTINGS

    def run(
        self,
        *words: str,
        input: bytes | IO[bytes] | None = None,
        output: IO[bytes] | None = None,
        index: str = "",
        timeout_s: float = TIMEOUT_S,
        variables: Mapping[str, str] | None = None,
        codes: Collection[int] = (0,),
    ) -> bytes:
        """Return the output of a command, unless it goes to a file; raises GitError.

        `index` is an index file to use instead of the repository's own; `codes` are the exit codes
        of success.
        """
        environment = {**clean(os.environ), **_VARIABLES, **self._place, **(variables or {})}
        if index:
            environment["GIT_INDEX_FILE"] = index
        with self._started(words, input, output, environment) as process:
            data = input if isinstance(input, bytes) else None
            try:
                out, err = process.communicate(data, timeout_s)
            except subprocess.TimeoutExpired:
                _kill(process)
                raise GitError(f"git {words[0]} did not end within {timeout_s:g} s") from None
            except BaseException:
                _kill(process)
                raise
        if process.returncode not in codes:
            raise GitError(f"git {words[0]} failed: {_reason(err, process.returncode)}")
        return out or b""

    def line(self, *words: str) -> str:
        """Return an output that is one line, such as a path or an id; raises GitError."""
        return os.fsdecode(self.run(*words)).removesuffix("\n")

    def _started(
        self,
        words: tuple[str, ...],
        input: bytes | IO[bytes] | None,
        output: IO[bytes] | None,
        environment: Mapping[str, str],
    ) -> "subprocess.Popen[bytes]":
        path = environment.get("PATH", os.defpath)
        program = shutil.which("git", path=path)
        if program is None:
            raise GitError("git was not found: install it, or add its folder to PATH")
        stdin: Any = subprocess.PIPE if isinstance(input, bytes) else input
        try:
            return subprocess.Popen(
                [program, *_SETTINGS, *words],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE if output is None else output,
                stderr=subprocess.PIPE,
                start_new_session=True,  # no terminal to ask at, and no Ctrl-C halfway
            )
        except OSError as error:
            raise GitError(f"cannot run git in {self.folder}: {error.strerror}") from error


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _reason(err: bytes, code: int) -> str:
    """Return git's own words: the first error, or all there is."""
    lines = [line for line in err.decode(errors="replace").splitlines() if line.strip()]
    found = [line for line in lines if line.startswith(("fatal: ", "error: "))] or lines
    words = found[0].partition(": ")[2] or found[0] if found else f"exit code {code}"
    return words[:_MAX_WORDS]
