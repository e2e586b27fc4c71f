"""However Portico ends, none of its child processes remains."""

import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portico.upstream.process.guardian import GUARDIAN
from portico.upstream.wires.child_wire import Command
from tests.wrap.standing import until

GONE_S = 8.0
"""Four times the documented limit, for a busy machine."""

MEMBER = """
import os, signal, subprocess, sys, time
fifo, ways = sys.argv[1], sys.argv[2:]
if "deaf" in ways:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "apart" in ways:
    os.setsid()
if "parent" in ways:
    subprocess.Popen([sys.executable, *sys.orig_argv[1:5], fifo, "deaf", "apart"])
os.write(os.open(fifo, os.O_WRONLY), b"x")
if "parent" in ways:
    sys.stdin.read()
else:
    time.sleep(600)
"""

DRIVER = """
import asyncio, contextlib, json, os, signal, sys
from portico.upstream.wires.child_wire import Command
from portico.upstream.process.guardian import GUARDIAN

def end(guardian):
    os.kill(guardian, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # it is collected already
        os.waitid(os.P_PID, guardian, os.WEXITED | os.WNOWAIT)

async def main():
    wires = []
    for argv in json.loads(sys.argv[1]):
        if "loses" in sys.argv and (guardian := GUARDIAN.pid):
            end(guardian)
        wires.append(Command(tuple(argv)).wire())
        await wires[-1].open(None)
    print(GUARDIAN.pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    if "mourns" in sys.argv:
        end(GUARDIAN.pid)
    if "closes" in sys.argv:
        for wire in wires:
            await wire.close()

asyncio.run(main())
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows who left its group")


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = str(tmp_path / "alive")
    os.mkfifo(path)
    return path


@pytest.fixture
def alive(fifo: str) -> Iterator[int]:
    """A pipe that every descendant keeps open: it ends with the last of them."""
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    yield fd
    os.close(fd)


def member(fifo: str, *ways: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", MEMBER, fifo, *ways]


def shell(*members: list[str]) -> list[str]:
    """A shell that waits for its child, as that of npx does."""
    words = [word for argv in members for word in argv]
    each, size = [], 0
    for argv in members:
        each.append(" ".join(f'"${{{size + n + 1}}}"' for n in range(len(argv))) + " &")
        size += len(argv)
    return ["sh", "-c", " ".join([*each, "wait"]), "sh", *words]


def drive(commands: list[list[str]], *ways: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", DRIVER, json.dumps(commands), *ways]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def until_all_live(alive: int, count: int) -> None:
    seen = 0
    while seen < count:
        assert select.select([alive], [], [], GONE_S)[0]
        seen += len(os.read(alive, count - seen))


def until_all_are_gone(alive: int) -> None:
    assert select.select([alive], [], [], GONE_S)[0], "somebody is left"
    assert os.read(alive, 1) == b""


def until_it_is_gone(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([handle], [], [], GONE_S)[0], "the guardian is left"
    os.close(handle)


def until_it_waits(pipe: int) -> None:
    """Wait until the guardian has read all notes; there is no event for that."""
    until(lambda: not any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))), "it does not read")


def links_of(pid: int | None) -> dict[str, str]:
    links = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it looks into /proc itself
            links[fd.name] = os.readlink(fd)
    return links


def memory_of(pid: int | None) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def guardian_of(driver: subprocess.Popen[bytes]) -> int:
    assert driver.stdout is not None
    return int(driver.stdout.readline())


def killed(driver: subprocess.Popen[bytes]) -> None:
    with driver:
        driver.kill()


FAMILIES: dict[str, Any] = {
    "behind a shell": (lambda fifo: [shell(member(fifo))], 1),
    "deaf to SIGTERM": (lambda fifo: [shell(member(fifo, "deaf"))], 1),
    "three at once": (lambda fifo: [shell(member(fifo), member(fifo, "deaf"))] * 3, 6),
    "in another session": (lambda fifo: [shell(member(fifo, "apart", "deaf"))], 1),
    "left by a parent that goes": (lambda fifo: [member(fifo, "parent")] * 3, 6),
}


@linux
@pytest.mark.parametrize("family", FAMILIES)
def test_a_killed_portico_leaves_nobody(family: str, fifo: str, alive: int) -> None:
    make, count = FAMILIES[family]
    driver = drive(make(fifo))
    guardian = guardian_of(driver)
    until_all_live(alive, count)
    killed(driver)
    until_all_are_gone(alive)
    until_it_is_gone(guardian)


@linux
def test_polite_signals_do_not_end_the_guardian_first(fifo: str, alive: int) -> None:
    driver = drive([shell(member(fifo))])
    guardian = guardian_of(driver)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guardian, number)
    until_all_live(alive, 1)
    killed(driver)
    until_all_are_gone(alive)


@linux
def test_a_lost_guardian_is_replaced_by_one_that_knows_all_children(fifo: str, alive: int) -> None:
    driver = drive([shell(member(fifo, "deaf"))] * 3, "loses")
    guardian_of(driver)
    until_all_live(alive, 3)
    killed(driver)
    until_all_are_gone(alive)


@linux
@pytest.mark.parametrize("way", ["closes", "forgets to close", "mourns"])
def test_an_orderly_end_leaves_neither_children_nor_guardian(
    way: str, fifo: str, alive: int
) -> None:
    driver = drive([member(fifo, "parent")] * 2, way)
    guardian = guardian_of(driver)
    until_all_live(alive, 4)
    with driver:
        driver.communicate(b"\n", timeout=4 * GONE_S)
    assert driver.returncode == 0
    until_all_are_gone(alive)
    until_it_is_gone(guardian)


@linux
async def test_the_guardian_holds_nothing_of_ours_and_stays_small(tmp_path: Path) -> None:
    held = os.open(tmp_path / "ours", os.O_CREAT)
    os.set_inheritable(held, True)
    wire = Command(("cat",)).wire()
    await wire.open(None)  # type: ignore[arg-type]  # nothing comes
    await asyncio.to_thread(until_it_waits, GUARDIAN.pipe)
    files = links_of(GUARDIAN.pid)
    memory = memory_of(GUARDIAN.pid)
    pipe = os.readlink(f"/proc/self/fd/{GUARDIAN.pipe}")
    await wire.close()
    os.close(held)
    standard = {fd: files.pop(fd).partition(":")[0] for fd in "12"}
    assert files.pop("0") == pipe
    assert standard == {"1": "pipe", "2": os.devnull}
    own = [file for file in files.values() if not file.startswith("/proc/")]
    assert [file.partition(":")[0] for file in own] == ["pipe"], "to its twin"
    assert memory <= 14 * 1024 * 1024


async def test_there_is_one_guardian_for_all_children_and_another_if_it_dies() -> None:
    first, second, third = (Command(("cat",)).wire() for _ in range(3))
    await first.open(None)  # type: ignore[arg-type]  # nothing comes
    guardian = GUARDIAN.pid
    assert guardian is not None
    await second.open(None)  # type: ignore[arg-type]
    assert GUARDIAN.pid == guardian
    os.kill(guardian, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # it is collected already
        await asyncio.to_thread(os.waitid, os.P_PID, guardian, os.WEXITED | os.WNOWAIT)
    await third.open(None)  # type: ignore[arg-type]
    assert GUARDIAN.pid not in {None, guardian}
    for wire in (first, second, third):
        await wire.close()


@linux
def test_a_fork_of_ours_does_not_hide_our_end(fifo: str, alive: int) -> None:
    forks = DRIVER.replace(
        "    print(", "    if not os.fork(): os.close(1); signal.pause()\n    print("
    )
    argv = [sys.executable, "-c", forks, json.dumps([member(fifo)])]
    driver = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    guardian_of(driver)
    until_all_live(alive, 1)
    killed(driver)
    until_all_are_gone(alive)
    os.killpg(driver.pid, signal.SIGKILL)
