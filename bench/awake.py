"""Keeps the cores of a virtual machine from halting while something is measured.

A core with nothing to do is handed back to the hypervisor, and to get it again may take longer
than to answer a request; that is charged to whoever is woken. So a loop runs on each core that has
the least claim of all (SCHED_IDLE): it stands aside at once for everybody else, contenders, floors
and drivers alike. By hand that halved a cached list's CPU time; in whole runs it showed less.

Linux shares the time out among sessions first (autogroup), and only then among the processes of
each. In the driver's session the loops would therefore hold up whoever has another session, as the
children of Portico have, for milliseconds; so they have one of their own, with the least share.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

_LOOP = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
try:
    with open("/proc/self/autogroup", "w") as share:
        share.write("19")
except OSError:
    pass  # a kernel without it
parent = int(sys.argv[2])
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """No core halts as long as the block runs."""
    cores = sorted(os.sched_getaffinity(0))
    loops = [
        subprocess.Popen(
            [sys.executable, "-c", _LOOP, str(core), str(os.getpid())], start_new_session=True
        )
        for core in cores
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
