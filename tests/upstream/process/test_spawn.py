"""Starting a server does not block others, whichever resource is exhausted."""

import asyncio
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from portico.core.model.errors import TargetError
from portico.upstream.process import guardian, spawn
from portico.upstream.process.guardian import GUARDIAN
from portico.upstream.wires.child_wire import ChildWire, Command
from portico.upstream.wires.wire import Outgoing
from tests.support.backoff import until
from tests.support.shared import unavailable
from tests.support.unprivileged import unprivileged
from tests.upstream.connections.fakes import WAIT_S
from tests.upstream.process.test_child_process import next_of, opened

linux = pytest.mark.skipif(sys.platform != "linux", reason="uses what only Linux has")
CAT = Command(("cat",))

CROWDED = """
import asyncio, os, resource, sys
from portico.core.model.errors import TargetError
from portico.upstream.wires.child_wire import Command
from portico.upstream.process.guardian import GUARDIAN

def limit(pid):
    resource.prlimit(pid, resource.RLIMIT_NPROC, (1, 1))

async def main():
    wires = []
    if "early" not in sys.argv:
        wires.append(Command(("cat",)).wire())
        await wires[0].open(None)
        limit(GUARDIAN.pid)
    limit(os.getpid())
    for _ in range(2):
        try:
            await Command(("cat",)).wire().open(None)
        except TargetError as error:
            print(error)
    for wire in wires:
        await wire.close()
    assert not GUARDIAN.groups

asyncio.run(main())
"""


async def answers(wire: ChildWire, inbox: object) -> bool:
    await wire.send(Outgoing(b"1"))
    return await next_of(inbox) == b"1"  # type: ignore[arg-type]


@contextmanager
def leased(path: Path) -> Iterator[None]:
    """Block all processes that open the file, also to run it, until the block ends."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # how the kernel says that somebody waits
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        os.close(fd)
        unavailable(f"no lease on files in {path.parent}: {error.strerror}")
    try:
        yield
    finally:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(fd)
        signal.signal(signal.SIGIO, before)


@linux
async def test_a_program_that_is_slow_to_load_holds_up_nobody(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    cat = shutil.which("cat")
    assert cat is not None
    shutil.copy(cat, slow)
    async with asyncio.timeout(WAIT_S):
        with leased(slow):
            starting = asyncio.create_task(opened(Command((str(slow),))))
            for _ in range(2):
                wire, inbox = await opened(CAT)
                assert await answers(wire, inbox)
                await wire.close()
            assert not starting.done()
        wire, inbox = await starting
        assert await answers(wire, inbox)
        await wire.close()


@linux
async def test_a_start_that_is_given_up_leaves_nothing_when_it_comes(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    cat = shutil.which("cat")
    assert cat is not None
    shutil.copy(cat, slow)
    before = set(GUARDIAN.groups)
    async with asyncio.timeout(WAIT_S):
        with leased(slow):
            starting = asyncio.create_task(opened(Command((str(slow),))))
            wire, inbox = await opened(CAT)
            assert await answers(wire, inbox)
            starting.cancel()
            await asyncio.wait({starting})
        await wire.close()
        await until(lambda: not GUARDIAN.groups.keys() - before)  # it is forgotten when it ends


@linux
async def test_a_guardian_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardian, "ANSWER_S", 0.5)
    first, heard = await opened(CAT)
    stopped = GUARDIAN.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    second, inbox = await opened(CAT)
    assert await answers(second, inbox)
    assert await answers(first, heard)
    assert GUARDIAN.pid not in (None, stopped)
    for wire in (first, second):
        await wire.close()


async def test_where_no_thread_can_be_had_the_loop_starts_a_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    first, _ = await opened(CAT)  # with its guardian
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", no_thread)
        second, inbox = await opened(CAT)
        assert await answers(second, inbox)
    for wire in (first, second):
        await wire.close()


async def test_without_descriptors_a_start_fails_and_leaks_none() -> None:
    wire, inbox = await opened(CAT)
    before = len(os.listdir("/dev/fd"))
    for room in range(8):
        with few_descriptors(room), pytest.raises(TargetError, match="raise `ulimit -n`"):
            await opened(CAT)
    assert len(os.listdir("/dev/fd")) <= before  # those of an earlier test may be closed meanwhile
    assert await answers(wire, inbox)
    await wire.close()


@contextmanager
def few_descriptors(room: int) -> Iterator[None]:
    """Allow this many more open files within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@linux
@pytest.mark.parametrize("when", ["early", "late"])
def test_without_processes_a_start_fails_and_says_why(when: str) -> None:
    done = subprocess.run(
        unprivileged(sys.executable, "-c", CROWDED, when),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.count("raise `ulimit -u`") == 2


async def test_without_a_guardian_servers_are_started_all_the_same() -> None:
    code = """
import asyncio, sys
from portico.upstream.wires.child_wire import Command
sys.executable = "/nowhere/python"

async def main():
    wire = Command(("cat",)).wire()
    await wire.open(None)
    await wire.close()
    print(wire.process.returncode)

asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize("place", ["link", "link/inner"])
@pytest.mark.parametrize("is_below_keeper", [pytest.param(True, marks=linux), False])
async def test_an_agent_is_not_started_behind_a_link(
    tmp_path: Path, place: str, is_below_keeper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    if not is_below_keeper:
        monkeypatch.setattr(sys, "platform", "darwin")
    mark = GUARDIAN.announce()
    with pytest.raises(NotADirectoryError):
        await spawn.spawn(("pwd",), {}, str(tmp_path / place), mark, is_kept=True)
    real = str(tmp_path / "real" / "inner")
    child = await spawn.spawn(("pwd",), {}, real, mark, is_kept=True)
    assert child.stdout.read() == f"{real}\n".encode()
    child.close()
    await asyncio.to_thread(os.waitpid, child.pid, 0)
    GUARDIAN.forget(mark)
