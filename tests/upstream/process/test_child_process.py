"""The pipes of a child process: whole lines, bounded, and nothing left open."""

import asyncio
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.errors import TargetError
from portico.upstream.rpc.exchange import Exchange
from portico.upstream.wires.child_wire import ChildWire, Command
from portico.upstream.wires.wire import Failure, Outgoing
from tests.upstream.connections.fakes import WAIT_S

MB = 1_000_000

PATIENT = """
import os, sys
os.open(sys.argv[1], os.O_RDONLY)  # only now does it begin to read
for line in sys.stdin.buffer:
    print(len(line), line[:1].decode(), len(set(line[:-1])), flush=True)
"""


class Inbox:
    """Records received messages."""

    answered = 0

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.end: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()

    def received(self, message: bytes, about: bytes = b"") -> None:
        self.messages.put_nowait(message)

    def malformed(self, remains: bytes, why: str) -> None:
        raise AssertionError(why)

    def failed(self, id: bytes, failure: Failure) -> None:
        raise AssertionError(failure.why)

    def lost(self, failure: Failure) -> None:
        self.end.set_result(failure)

    def stream_closed(self, id: bytes) -> None:
        raise AssertionError("a pipe has no streams")

    def is_pending(self, id: bytes) -> bool:
        return True


def python(code: str, *args: str) -> Command:
    argv = (sys.executable, "-I", "-S", "-c", code, *args)
    return Command(argv, title="child", stdin_grace_s=0.1, term_grace_s=1)


async def opened(command: Command) -> tuple[ChildWire, Inbox]:
    wire, inbox = command.wire(), Inbox()
    await wire.open(inbox)
    return wire, inbox


async def next_of(inbox: Inbox) -> bytes:
    return await asyncio.wait_for(inbox.messages.get(), WAIT_S)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def gate(tmp_path: Path) -> str:
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    return path


def opens(gate: str) -> Callable[[], int]:
    return lambda: os.open(gate, os.O_WRONLY)


async def test_cancelled_senders_leave_no_half_line_behind(gate: str) -> None:
    wire, inbox = await opened(python(PATIENT, gate))
    sending = {
        letter: asyncio.create_task(wire.send(Outgoing(letter.encode() * MB)))
        for letter in "abcdefghij"
    }
    await turns()
    taken = [letter for letter, task in sending.items() if task.done()]
    assert 1 <= len(taken) <= 3, "the others wait"
    for task in sending.values():
        task.cancel()
    await asyncio.wait(sending.values())
    last = asyncio.create_task(wire.send(Outgoing(b"z" * MB)))
    let_go = await asyncio.to_thread(opens(gate))
    for letter in [*taken, "z"]:
        assert await next_of(inbox) == f"{MB + 1} {letter} 1".encode()
    await last
    await wire.close()
    os.close(let_go)


async def test_waiting_senders_go_on_when_the_child_reads(gate: str) -> None:
    wire, inbox = await opened(python(PATIENT, gate))
    sending = [asyncio.create_task(wire.send(Outgoing(b"%d" % n * MB))) for n in range(10)]
    await turns()
    let_go = await asyncio.to_thread(opens(gate))
    lines = [await next_of(inbox) for _ in range(10)]
    assert sorted(lines) == [f"{MB + 1} {n} 1".encode() for n in range(10)]
    await asyncio.gather(*sending)
    await wire.close()
    os.close(let_go)


class Workshop:
    """Makes large messages, and notes which."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def message(self, number: int) -> Callable[[], bytes]:
        def make() -> bytes:
            self.made.append(number)
            return b"x" * MB

        return make


async def test_what_waits_for_a_child_is_made_when_its_turn_comes(gate: str) -> None:
    wire, inbox = await opened(python(PATIENT, gate))
    workshop = Workshop()
    sending = [
        asyncio.create_task(wire.send(Outgoing(workshop.message(number)))) for number in range(100)
    ]
    await turns()
    assert 1 <= len(workshop.made) <= 3, "the others wait"
    assert not wire.send_now(Outgoing(b"y")), "it would overtake them"
    sending[50].cancel()
    last = asyncio.create_task(wire.send(Outgoing(b"z")))
    let_go = await asyncio.to_thread(opens(gate))
    lines = [await next_of(inbox) for _ in range(100)]
    assert lines == [f"{MB + 1} x 1".encode()] * 99 + [b"2 z 1"]
    assert workshop.made == [number for number in range(100) if number != 50]
    await last
    await wire.close()
    os.close(let_go)


async def no_answer(method: str, params: bytes, about: bytes) -> bytes:
    raise AssertionError(method)


async def waiting_calls(gate: str, *limits_s: float) -> tuple[Exchange, Workshop, list[Any]]:
    """Calls with large params to a child that does not read."""
    wire = python(PATIENT, gate).wire()
    exchange = Exchange(wire, "child", no_answer, lambda *_: None)
    await exchange.open()
    workshop = Workshop()
    calls = [
        asyncio.create_task(
            exchange.request(exchange.next_id(), "work", workshop.message(number), timeout=limit_s)
        )
        for number, limit_s in enumerate(limits_s)
    ]
    await turns()
    return exchange, workshop, calls


async def test_a_call_runs_out_or_is_cancelled_while_it_waits_to_be_sent(gate: str) -> None:
    exchange, workshop, calls = await waiting_calls(gate, *[WAIT_S] * 4, 0.01, WAIT_S)
    calls[5].cancel()
    with pytest.raises(TargetError, match="did not answer work within") as late:
        await calls[4]
    assert late.value.kind == "timeout"
    assert len(workshop.made) <= 3
    await exchange.close()
    await asyncio.gather(*calls, return_exceptions=True)
    assert len(workshop.made) <= 3


async def test_calls_that_wait_to_be_sent_fail_with_the_child(gate: str) -> None:
    exchange, workshop, calls = await waiting_calls(gate, *[WAIT_S] * 10)
    assert isinstance(exchange.wire, ChildWire)
    assert exchange.wire.process is not None
    os.kill(exchange.wire.process.pid, 9)
    async with asyncio.timeout(WAIT_S):
        failures = await asyncio.gather(*calls, return_exceptions=True)
    assert {getattr(failure, "kind", None) for failure in failures} == {"exited"}
    assert len(workshop.made) <= 3
    await exchange.close()


async def test_senders_who_wait_go_free_at_the_end_of_the_child(gate: str) -> None:
    wire, inbox = await opened(python(PATIENT, gate))
    sending = [asyncio.create_task(wire.send(Outgoing(b"x" * MB))) for _ in range(5)]
    await turns()
    assert wire.process is not None
    os.kill(wire.process.pid, 9)
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*sending, return_exceptions=True)
        assert (await inbox.end).kind == "exited"
    with pytest.raises(TargetError, match="SIGKILL"):
        await wire.send(Outgoing(b"x"))
    await wire.close()


async def test_a_line_is_written_at_once_when_there_is_room() -> None:
    wire, inbox = await opened(Command(("cat",)))
    with pytest.raises(StopIteration):  # a coroutine that ends without waiting for anything
        wire.send(Outgoing(b'{"a":1}')).send(None)
    assert await next_of(inbox) == b'{"a":1}'
    await wire.close()


async def test_lines_that_come_together_arrive_whole_and_in_order() -> None:
    wire, inbox = await opened(Command(("cat",)))
    lines = [b'{"n":%d}' % n for n in range(100)]
    lines[50] = b'"%b"' % (b"x" * 5000)
    for line in lines[:99]:
        assert wire.send_now(Outgoing(line))
    await wire.send(Outgoing(lines[99]))
    assert [await next_of(inbox) for _ in lines] == lines
    await wire.close()


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 10 * MB])
async def test_a_line_of_any_size_passes_intact(size: int) -> None:
    wire, inbox = await opened(Command(("cat",)))
    line = (b"0123456789abcdef!" * (size // 17 + 1))[:size]
    await wire.send(Outgoing(line))
    assert await next_of(inbox) == line
    await wire.close()


async def test_a_flood_on_stderr_keeps_only_its_end() -> None:
    code = """
import os
for _ in range(1600): os.write(2, b"x" * 65535 + b"\\n")
os.write(2, b"the last word")
os.write(1, b"done\\n")
os.read(0, 1)
"""
    wire, inbox = await opened(python(code))
    assert await next_of(inbox) == b"done"
    await wire.close()
    assert len(wire.stderr_tail) <= 2 * 64 * 1024
    assert wire.stderr_tail.tail().endswith("the last word")


async def test_starting_and_stopping_leaks_no_descriptor() -> None:
    async def round_trip() -> None:
        wire, inbox = await opened(Command(("cat",)))
        await wire.send(Outgoing(b"1"))
        await next_of(inbox)
        await wire.close()

    await round_trip()  # the guardian comes with the first child, and stays
    before = len(os.listdir("/dev/fd"))
    for _ in range(50):
        await round_trip()
    assert len(os.listdir("/dev/fd")) <= before  # those of an earlier test may be closed meanwhile


async def test_a_child_gets_the_environment_it_is_given_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OURS", "ours")
    code = "import os; print([v for v in ('OURS', 'GIVEN', 'ADDED') if v in os.environ])"
    argv = (sys.executable, "-I", "-S", "-c", code)
    wire, inbox = await opened(Command(argv, environment={"GIVEN": "1"}, env={"ADDED": "1"}))
    assert await next_of(inbox) == b"['GIVEN', 'ADDED']"
    await wire.close()


async def test_an_inherited_secret_is_not_among_the_last_words() -> None:
    code = "import os, sys; sys.exit('refused ' + os.environ['ACME_API_KEY'])"
    argv = (sys.executable, "-I", "-S", "-c", code)
    wire, _ = await opened(Command(argv, environment={"ACME_API_KEY": "k-123456789"}))
    assert wire.process is not None
    await wire.process.wait_exited(WAIT_S)
    await turns()
    await wire.close()
    assert wire.stderr_tail.tail() == "refused ***"


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows who left its group")
@pytest.mark.parametrize("way", ["leaves", "stays"])
async def test_closing_takes_a_grandchild_in_another_session_along(
    way: str, tmp_path: Path
) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    code = """
import subprocess, sys, time
sleeper = "import os, sys, time; os.write(os.open(sys.argv[1], 1), b'x'); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", sleeper, sys.argv[1]], start_new_session=True)
sys.stdin.read()
if sys.argv[2] == "stays": time.sleep(600)
"""
    wire, _ = await opened(python(code, str(fifo), way))
    with await asyncio.to_thread(open, fifo, "rb", 0) as alive:
        assert await asyncio.to_thread(alive.read, 1) == b"x"
        await wire.close()
        assert await asyncio.wait_for(asyncio.to_thread(alive.read, 1), WAIT_S) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows whose a daemon is")
@pytest.mark.parametrize("way", ["dies", "leaves"])
async def test_what_became_a_daemon_goes_with_the_child_that_started_it(
    way: str, tmp_path: Path
) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    code = """
import os, subprocess, sys, time
daemon = (
    "import os, sys, time; os.setsid(); ready, written = os.pipe();"
    "os.fork() and os.read(ready, 1) and os._exit(0);"  # not before it has written
    "os.write(os.open(sys.argv[1], 1), b'x'); os.write(written, b'x'); time.sleep(600)"
)
quiet = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
subprocess.run([sys.executable, "-c", daemon, sys.argv[1]], **quiet)
if sys.argv[2] == "leaves": sys.stdin.read()
"""
    alive = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    wire, _ = await opened(python(code, str(fifo), way))
    assert await heard(alive) == b"x"
    if way == "leaves":
        await wire.close()
    assert await heard(alive) == b"", "the daemon is left"
    await wire.close()
    os.close(alive)


async def heard(pipe: int) -> bytes | None:
    """Return the next item; None if there is none."""
    ready, _, _ = await asyncio.to_thread(select.select, [pipe], [], [], WAIT_S)
    return os.read(pipe, 1) if ready else None
