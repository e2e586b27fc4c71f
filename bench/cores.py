"""Runs all processes on one core, so that none has to be woken on another.

To wake a process on another core takes an interrupt from core to core. On a virtual machine the
hypervisor has to pass it on, which may cost more than all that a server does for a request, and is
charged to the two that talk. Who shares one core with its driver and its upstream pays for its own
work only. An echo, which does no work, shows how much the difference is.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from sys import executable

from bench.process import Process, Workspace

_ECHO = "import os\nwhile data := os.read(0, 65536):\n    os.write(1, data)\n"
_MESSAGE = b"x" * 100
_ROUNDS = 5


@contextlib.contextmanager
def one_core(pids: Iterable[int]) -> Iterator[None]:
    """The driver and these processes run on one core as long as the block runs."""
    everywhere, others = os.sched_getaffinity(0), [*pids]
    core = {max(everywhere)}
    _bind([os.getpid(), *others], core)
    try:
        yield
    finally:
        # They would stay together where they are: part them, as they were before.
        _bind(others, everywhere - core or everywhere)
        _bind([os.getpid(), *others], everywhere)


def _bind(pids: list[int], cores: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), cores)


def price_of_waking(messages: int) -> str:
    """Describe the time that an echo takes for a message here."""
    free, single = [], []
    with (
        Workspace() as workspace,
        Process([executable, "-c", _ECHO], workspace, 1, pipes=True) as echo,
    ):
        _echoed(echo, messages // 10)
        for _ in range(_ROUNDS):
            free.append(_echoed(echo, messages))
            with one_core(echo.everyone()):
                single.append(_echoed(echo, messages))
    return (
        f"An echo in Python, which only reads and writes, takes {min(free):.0f} to "
        f"{max(free):.0f} us of CPU a message with all cores, and {median(single):.0f} on one: the "
        "difference is the cost of waking another core on this machine, which every contender pays "
        "at each hop."
    )


def price_of_reading(faults: float | None) -> str:
    """Describe the floor's calls on one core."""
    return (
        "asyncio reads a pipe into 256 KB, which malloc returns to the kernel after each read or "
        "keeps, depending on the heap: two page faults a call or none, which cost more than "
        "everything else in the floor. With one call in flight on one core it had "
        f"{'-' if faults is None else f'{faults:.1f}'} in this run."
    )


def _echoed(echo: Process, messages: int) -> float:
    """CPU us a message."""
    assert echo.popen.stdin is not None
    assert echo.popen.stdout is not None
    there, back = echo.popen.stdin.fileno(), echo.popen.stdout.fileno()
    before = echo.cpu_s()
    for _ in range(messages):
        os.write(there, _MESSAGE)
        os.read(back, 2 * len(_MESSAGE))
    return (echo.cpu_s() - before) / messages * 1e6
