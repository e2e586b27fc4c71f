"""Servers that end together share one reading of the process table."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portico.upstream.process import process_tree
from portico.upstream.process.guardian import GUARDIAN
from portico.upstream.wires.child_wire import Command
from tests.upstream.process.test_child_process import heard, opened, python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows who left a group")

MANY = 100
FEW = 20
"""The limit of readings: two for each batch of servers, and few batches."""
DAEMON = """
import os, subprocess, sys
daemon = (
    "import os, sys, time; os.setsid(); os.fork() and os._exit(0);"
    "os.write(os.open(sys.argv[1], 1), b'x'); time.sleep(600)"
)
quiet = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
subprocess.run([sys.executable, "-I", "-S", "-c", daemon, sys.argv[1]], **quiet)
sys.stdin.read()
"""


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the readings of the process table."""
    count = 0
    processes = process_tree.processes

    def counted(since: int = 0) -> dict[int, tuple[int, int, int, int]]:
        nonlocal count
        count += 1
        return processes(since)

    monkeypatch.setattr(process_tree, "processes", counted)
    return lambda: count


@pytest.fixture
def alive(tmp_path: Path) -> Iterator[tuple[str, int]]:
    path = str(tmp_path / "alive")
    os.mkfifo(path)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield path, fd
    os.close(fd)


async def test_many_servers_stop_with_a_few_readings_of_the_process_table(
    readings: Callable[[], int],
) -> None:
    known = set(GUARDIAN.groups)
    wires = [(await opened(Command(("cat",))))[0] for _ in range(MANY)]
    before = readings()
    await asyncio.gather(*(wire.close() for wire in wires))
    assert readings() - before <= FEW
    assert not GUARDIAN.groups.keys() - known


async def test_daemons_of_servers_that_stop_together_are_all_found(
    alive: tuple[str, int], readings: Callable[[], int]
) -> None:
    path, fd = alive
    wires = [(await opened(python(DAEMON, path)))[0] for _ in range(5)]
    for _ in wires:
        assert await heard(fd) == b"x"
    await asyncio.gather(*(wire.close() for wire in wires))
    assert await heard(fd) == b"", "a daemon is left"
    assert readings() <= FEW


async def test_a_family_that_cannot_be_looked_for_is_left_to_the_guardian(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(since: int = 0) -> dict[int, tuple[int, int, int, int]]:
        raise OSError(errno.EMFILE, "Too many open files")

    wire, _ = await opened(Command(("cat",)))
    with monkeypatch.context() as patched:
        patched.setattr(process_tree, "processes", fails)
        await wire.close()
    assert wire.process is not None
    assert wire.process.mark in GUARDIAN.groups
    GUARDIAN.forget(wire.process.mark)


def test_older_processes_are_left_out_and_found_again_when_they_matter() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        start = process_tree.start_of(child.pid)
        assert start is not None
        for _ in range(2):  # read, and known
            assert child.pid not in process_tree.processes(start + 1)
            assert process_tree.processes(start)[child.pid][0] == os.getpid()
        child.communicate()
    assert child.pid not in process_tree.processes()


def test_our_own_process_is_always_in_the_table() -> None:
    for _ in range(2):
        assert list(process_tree.processes(sys.maxsize)) == [os.getpid()]
