"""Killing guardians, Porticos or both, in any order, leaves no process behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from portico.upstream.process.guardian import GUARDIAN
from portico.upstream.process.process_tree import processes
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.wire import Outgoing
from tests.support.backoff import until as eventually
from tests.support.soak import times
from tests.upstream.process.test_child_process import next_of, opened, python
from tests.upstream.process.test_guardian import (
    alive,
    drive,
    fifo,
    guardian_of,
    killed,
    member,
    shell,
    until_all_are_gone,
    until_all_live,
)
from tests.wrap.faults import until as comes
from tests.wrap.standing import until

__all__ = ["alive", "fifo"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux finds all of them")


def a_family(fifo: str) -> list[list[str]]:
    """Every sort of server that is hard to end: four members for each round."""
    return [
        shell(member(fifo, "deaf")),
        shell(member(fifo, "apart", "deaf")),
        member(fifo, "parent"),
    ]


def kill_guardian_first(driver: "subprocess.Popen[bytes]", guardian: int) -> None:
    os.kill(guardian, signal.SIGKILL)
    killed(driver)


def kill_both_at_once(driver: "subprocess.Popen[bytes]", guardian: int) -> None:
    os.kill(driver.pid, signal.SIGSTOP)  # it can notice nothing
    kill_guardian_first(driver, guardian)


def kill_portico_first(driver: "subprocess.Popen[bytes]", guardian: int) -> None:
    killed(driver)
    os.kill(guardian, signal.SIGKILL)


Kill = Callable[["subprocess.Popen[bytes]", int], None]
ORDERS: list[Kill] = [kill_guardian_first, kill_both_at_once, kill_portico_first]


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("kill", ORDERS)
def test_killing_portico_and_its_guardian_leaves_nobody(
    kill: Kill, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rounds = times(3, 20)
    for number in range(rounds):
        fifo = str(tmp_path / f"alive{number}")
        os.mkfifo(fifo)
        alive = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        driver = drive(a_family(fifo))
        guardian = guardian_of(driver)
        until_all_live(alive, 4)
        kill(driver, guardian)
        until_all_are_gone(alive)
        os.close(alive)
    record_property("soak", f"{rounds} rounds, 0 processes left")


async def test_a_dead_guardian_is_replaced_at_once() -> None:
    wire, _ = await opened(Command(("cat",)))
    before = GUARDIAN.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    await another_runs(before)
    await wire.close()


async def another_runs(before: int) -> None:
    await eventually(lambda: GUARDIAN.pid not in (None, before))


async def test_the_death_of_a_guardian_disturbs_no_server() -> None:
    wire, inbox = await opened(Command(("cat",)))
    before = GUARDIAN.pid
    assert before is not None
    os.killpg(before, signal.SIGKILL)
    await another_runs(before)
    assert wire.send_now(Outgoing(b"1"))
    assert await next_of(inbox) == b"1"
    assert not inbox.end.done()
    await wire.close()


async def test_a_dead_twin_is_replaced_with_the_next_start() -> None:
    first, _ = await opened(Command(("cat",)))
    [twin] = await asyncio.to_thread(twins)
    os.kill(twin, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: has_ended(twin), "the twin still runs")
    second, _ = await opened(Command(("cat",)))
    assert await asyncio.to_thread(twins, other_than=twin)
    for wire in (first, second):
        await wire.close()


def has_ended(pid: int) -> bool:
    """True once a process has ended, even if nobody has waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def twins(other_than: int = 0) -> list[int]:
    """The processes in the guardian's group beside it, as soon as there are any."""
    found: list[int] = []

    def there() -> bool:
        guardian = GUARDIAN.pid
        # A child of the guardian is about to start the twin, and then to leave; a child of ours is
        # a server that has not left the group yet.
        found[:] = [
            pid
            for pid, (parent, group, *_) in processes().items()
            if group == guardian
            and parent not in (guardian, os.getpid())
            and pid not in (guardian, other_than)
        ]
        return bool(found)

    until(there, "the guardian has no twin")
    return found


async def test_a_guardian_has_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "k-123456789")
    before = GUARDIAN.pid
    wire, _ = await opened(Command(("cat",)))
    if before is not None:
        os.killpg(before, signal.SIGKILL)
        await another_runs(before)
    shown = shown_by(GUARDIAN.pid)
    assert b"ACME" not in shown
    assert b"k-123456789" not in shown
    await wire.close()


def shown_by(pid: int | None) -> bytes:
    return b"".join(Path(f"/proc/{pid}/{file}").read_bytes() for file in ("environ", "cmdline"))


async def test_a_child_is_ours_and_inherits_three_streams_only() -> None:
    code = "import os; print(os.getppid(), sorted(os.listdir('/proc/self/fd')), os.getcwd())"
    wire, inbox = await opened(python(code))
    # The fourth is the folder that it lists.
    assert await next_of(inbox) == f"{os.getpid()} ['0', '1', '2', '3'] {os.getcwd()}".encode()
    await wire.close()


SPARING = """
import asyncio, os, sys
from portico.upstream.process.child_process import ChildProcess
from portico.upstream.process.guardian import GUARDIAN

async def main():
    words = sys.argv[1:]
    argv = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read(); " + words[1]]
    child = await ChildProcess.start(argv, dict(os.environ), None, spared_s=float(words[0]))
    if words[2:]:
        child.spare(float(words[2]))
    print(f"{child.pid}\\n{GUARDIAN.pid}", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
WORKS = "import time; time.sleep(600)"
ENDS = "pass"


def sparing(*words: str) -> tuple["subprocess.Popen[bytes]", int]:
    """A Portico, and its child that may outlive it."""
    driver = subprocess.Popen([sys.executable, "-c", SPARING, *words], stdout=subprocess.PIPE)
    assert driver.stdout is not None
    return driver, int(driver.stdout.readline())


def lives(pid: int) -> bool:
    return pid in processes()


@pytest.mark.parametrize("kill", [None, *ORDERS])
def test_a_spared_child_works_on_until_its_time_is_over(kill: Kill | None) -> None:
    driver, child = sparing("4", WORKS)
    guardian = guardian_of(driver)
    if kill is None:
        killed(driver)
    else:
        kill(driver, guardian)
    assert not comes(lambda: not lives(child), 2)
    until(lambda: not lives(child), "it outlived its time")


def test_a_guardian_ends_when_the_spared_child_does() -> None:
    driver, child = sparing("600", ENDS)
    guardian = guardian_of(driver)
    killed(driver)
    until(lambda: not lives(child), "it did not end with its input")
    until(lambda: not lives(guardian), "the guardian stays")


def test_a_child_that_is_spared_no_longer_ends_at_once() -> None:
    driver, child = sparing("600", WORKS, "0")
    killed(driver)
    until(lambda: not lives(child), "it outlived Portico")
