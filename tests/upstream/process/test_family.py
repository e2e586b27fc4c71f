"""Whatever an agent starts, and however, is found below it and ends with it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from portico.core.model.errors import PorticoError
from portico.upstream.process.family import Family, family_of, gateways_above
from portico.upstream.process.guardian import GUARDIAN
from portico.upstream.process.process_tree import MARK, read_proc
from portico.upstream.wires.child_wire import ChildWire, Command
from tests.support.backoff import until as eventually
from tests.upstream.process.test_child_process import Inbox, next_of, opened
from tests.upstream.process.test_guardian import (
    alive,
    fifo,
    killed,
    memory_of,
    until_all_are_gone,
    until_all_live,
)

__all__ = ["alive", "fifo"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has keepers")

HIDER = """
import os, signal, sys
fifo, ways = sys.argv[1], sys.argv[2:]
leader = os.getpid()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    code = '''if True:
        import os, signal, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(os.open(sys.argv[1], os.O_WRONLY), b"x")
        print(os.getpid(), flush=True)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        signal.pause()'''
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code, fifo], {})
os.wait()
if "deaf" in ways:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.readline()
if "dies" in ways:
    os.kill(leader, signal.SIGKILL)
if "deaf" in ways:
    signal.pause()
sys.exit(7)
"""
"""A command that starts a process with an empty environment, in a session of its own, whose parent
has exited; it prints its pid and ignores SIGTERM."""

DRIVER = """
import asyncio, json, os, sys
from portico.upstream.process.family import Family
from portico.upstream.process.guardian import GUARDIAN
from portico.upstream.process.process_tree import read_proc
from portico.upstream.wires.child_wire import Command

class Nobody:
    answered = 0
    received = malformed = failed = lost = stream_closed = lambda *_: None

async def main():
    await Command(tuple(json.loads(sys.argv[1])), family=Family()).wire().open(Nobody())
    print(GUARDIAN.pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


def hider(fifo: str, *ways: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", HIDER, fifo, *ways]


async def hidden(fifo: str, *ways: str) -> tuple[ChildWire, Inbox, Family, int]:
    """A leader and its hidden descendant's pid."""
    family = Family()
    command = Command(tuple(hider(fifo, *ways)), stdin_grace_s=0.1, term_grace_s=0.2, family=family)
    wire, inbox = await opened(command)
    return wire, inbox, family, int(await next_of(inbox))


def driven(fifo: str) -> "tuple[subprocess.Popen[bytes], int]":
    """A Portico with a leader that hides a process, and the pid of its guardian."""
    argv = [sys.executable, "-c", DRIVER, json.dumps(hider(fifo, "deaf"))]
    driver = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert driver.stdout is not None
    return driver, int(driver.stdout.readline())


@pytest.mark.parametrize("way", ["", "deaf", "dies"])
async def test_a_hidden_process_ends_with_its_leader(fifo: str, alive: int, way: str) -> None:
    wire, inbox, _, _ = await hidden(fifo, *way.split())
    until_all_live(alive, 1)
    if way == "dies":
        assert wire.stdin is not None
        wire.stdin.write(b"")
        assert "SIGKILL" in (await inbox.end).why
    await wire.close()
    until_all_are_gone(alive)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_hidden_process_ends_with_portico(fifo: str, alive: int, number: signal.Signals) -> None:
    driver, _ = driven(fifo)
    until_all_live(alive, 1)
    driver.send_signal(number)
    driver.communicate()
    until_all_are_gone(alive)


def test_a_hidden_process_ends_when_no_guardian_is_left(fifo: str, alive: int) -> None:
    driver, guardian = driven(fifo)
    until_all_live(alive, 1)
    os.kill(driver.pid, signal.SIGSTOP)  # it can notice nothing
    os.killpg(guardian, signal.SIGKILL)  # its twin as well
    killed(driver)
    until_all_are_gone(alive)


@pytest.mark.usefixtures("alive")
async def test_a_hidden_process_belongs_to_the_family_of_its_leader(fifo: str) -> None:
    wire, _, family, pid = await hidden(fifo)
    other, _, others, their = await hidden(fifo)
    assert family_of(pid) is family
    assert family_of(their) is others
    assert wire.process is not None
    assert family_of(wire.process.pid) is family
    assert family_of(os.getpid()) is family_of(os.getppid()) is None
    await wire.close()
    with pytest.raises(PorticoError, match=f"process {pid} has exited"):
        family_of(pid)
    await other.close()


def test_without_agents_no_process_is_looked_up() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    looks = f"from portico.upstream.process.family import family_of; print(family_of({ended.pid}))"
    ran = subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, check=True)
    assert ran.stdout == "None\n"


@pytest.mark.usefixtures("alive")
async def test_the_mark_of_another_family_does_not_adopt_a_process(fifo: str) -> None:
    first, _, _, _ = await hidden(fifo)
    assert first.process is not None
    mine = Family()
    code = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
    claim = ["env", f"{MARK}={first.process.mark}", sys.executable, "-c", code]
    wire, inbox = await opened(Command(tuple(claim), family=mine, stdin_grace_s=0))
    assert family_of(int(await next_of(inbox))) is mine
    await asyncio.gather(first.close(), wire.close())


async def test_a_server_has_no_family_and_no_keeper() -> None:
    wire, _ = await opened(Command(("cat",)))
    leader, _ = await opened(Command(("cat",), family=Family()))
    assert wire.process is not None
    assert family_of(wire.process.pid) is None
    assert read_proc(f"/proc/{wire.process.pid}/comm") == b"cat\n"
    await wire.close()
    await leader.close()


async def test_a_process_below_an_agent_finds_the_portico_of_that_agent() -> None:
    code = "from portico.upstream.process.family import gateways_above; print(gateways_above())"
    for family, found in ((Family(), [os.getpid()]), (None, [])):
        command = Command((sys.executable, "-c", code), family=family)
        wire, inbox = await opened(command)
        assert json.loads(await next_of(inbox)) == found
        await inbox.end
        await wire.close()
    assert gateways_above() == []


@pytest.mark.parametrize(
    ("code", "how"),
    [("exit 3", "exited with code 3"), ("kill -9 $$", "SIGKILL"), ("kill -15 $$", "SIGTERM")],
)
async def test_a_keeper_exits_as_its_child_did(code: str, how: str) -> None:
    wire, inbox = await opened(Command(("sh", "-c", code), family=Family()))
    assert how in (await inbox.end).why
    await wire.close()


async def test_a_child_that_cannot_start_below_a_keeper_is_explained() -> None:
    family = Family()
    with pytest.raises(Exception, match="no command 'no-such-agent'"):
        await Command(("no-such-agent",), family=family).wire().open(Inbox())


async def test_a_keeper_reaps_what_its_child_leaves_behind() -> None:
    script = "for n in 1 2 3; do (true &) ; done; echo done; cat"
    wire, inbox = await opened(Command(("sh", "-c", script), family=Family()))
    assert await next_of(inbox) == b"done"
    assert wire.process is not None
    keeper = wire.process.pid
    children = Path(f"/proc/{keeper}/task/{keeper}/children")
    await eventually(lambda: len(children.read_text().split()) == 1)
    await wire.close()


async def test_a_keeper_holds_no_files_and_little_memory() -> None:
    wire, _ = await opened(Command(("cat",), family=Family()))
    assert wire.process is not None
    assert os.listdir(f"/proc/{wire.process.pid}/fd") == []
    assert memory_of(wire.process.pid) <= 14 * 1024 * 1024
    await wire.close()


async def test_a_guardian_that_dies_is_noticed_beside_keepers() -> None:
    wire, _ = await opened(Command(("cat",), family=Family()))
    before = GUARDIAN.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: GUARDIAN.pid not in (None, before))
    again, _ = await opened(Command(("cat",), family=Family()))
    await asyncio.gather(wire.close(), again.close())


async def test_an_agent_that_kills_its_keeper_ends_too() -> None:
    wire, inbox = await opened(
        Command(("sh", "-c", "echo up; kill -9 $PPID; exec sleep 600"), family=Family())
    )
    assert await next_of(inbox) == b"up"
    await inbox.end
    await wire.close()
