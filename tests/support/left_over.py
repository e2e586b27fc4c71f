"""Fails a test run that leaves a process behind, and ends that process."""

import contextlib
import os
import secrets
import signal
import sys
import time

import pytest

from portico.upstream.process.process_tree import GUARDIAN_NAME, processes, read_proc, start_of
from tests.support.shared import ROOT

RUN = "PORTICO_TEST_RUN"
"""A variable of each test run, which all its processes inherit."""
_GONE_S = float(os.environ.get("LEFT_OVER_S", "15"))
"""How long they may take to end after the last test, on a busy machine."""
_IS_NESTED = RUN in os.environ
"""True in a run that a test of another run has started."""
_FOUND: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Name this run; the workers of xdist inherit the name."""
    if not hasattr(config, "workerinput"):
        os.environ[RUN] = secrets.token_hex(8)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a process is left, passed or failed."""
    if hasattr(session.config, "workerinput"):
        return
    limit = time.monotonic() + _GONE_S
    left = left_over(is_nested=_IS_NESTED)
    while left and time.monotonic() < limit:
        time.sleep(0.1)
        # What comes meanwhile and has no variables is of another run, in the same checkout.
        left = {pid: words for pid, words in left_over().items() if pid in left}
    for pid, words in left.items():
        _FOUND.append(f"process {pid}: {words}")
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left."""
    if _FOUND:
        terminalreporter.section("processes that the tests left behind")
        for line in _FOUND:
            terminalreporter.write_line(line)


def left_over(*, is_nested: bool = False) -> dict[int, str]:
    """The processes of this run that still run, by pid, and their command lines. A process whose
    variables cannot be read may be of the run around a nested one."""
    if sys.platform != "linux":
        return {}
    found = {}
    for pid in processes(start_of(os.getpid()) or 0):
        with contextlib.suppress(OSError):
            if pid != os.getpid() and _is_of_this_run(pid, is_nested=is_nested):
                words = read_proc(f"/proc/{pid}/cmdline").replace(b"\0", b" ")
                found[pid] = words.decode(errors="replace")
    return found


def _is_of_this_run(pid: int, *, is_nested: bool) -> bool:
    try:
        variables = read_proc(f"/proc/{pid}/environ")
    except PermissionError:  # of another user, or closed to all but root
        variables = b""
    if variables:
        return f"{RUN}={os.environ[RUN]}".encode() in variables.split(b"\0")
    words = read_proc(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
    if is_nested or str(ROOT) not in " ".join(words):
        return False
    if GUARDIAN_NAME in words:  # it has no variables, and ends after its Portico
        return start_of(int(words[words.index(GUARDIAN_NAME) + 1])) is None
    return bool(os.geteuid())
