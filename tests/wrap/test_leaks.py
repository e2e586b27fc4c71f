"""Ten thousand abandoned calls leave nothing behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import astuple

from portico.edge.windows.control import send_command
from tests.rigs.running import ledger
from tests.support.running import WAIT_S, Child
from tests.wrap.crowd import Served, Speaker, speaking
from tests.wrap.standing import Standing, children, until

AT_ONCE = 50
DISCONNECTS, CANCELS, STDIO_CANCELS = 4000, 3000, 3000
MOST_GROWTH_KIB = 16 * 1024

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("load")]


class Holds(Struct):
    """The resources of a process that can leak."""

    files: int
    kin: int
    tasks: int
    busy: int

    def is_within(self, other: "Holds") -> bool:
        """True if it is no more of anything."""
        return all(
            mine <= theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)
        )


def status(process: Child, home: Path) -> dict[str, Any]:
    """Its own status."""
    folder = str(home / "state" / "control")
    told = send_command(folder, f"{process.process.pid}.sock", "status", WAIT_S)
    assert told is not None
    assert told["ok"], told
    return told


def holds(process: Child, home: Path) -> Holds:
    pid, told = process.process.pid, status(process, home)
    return Holds(
        files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        kin=len(children(pid)),
        tasks=told["coroutines"],
        busy=sum(line["busy"] for line in told["connections"]),
    )


def comes_back(process: Child, home: Path, before: Holds) -> None:
    """Check that it has no more resources than before, once all calls are over."""
    until(lambda: holds(process, home).is_within(before), f"it holds more than {before}")


class Book:
    """The calls that reached the server: only those are abandoned."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._seen: set[str] = set()
        self._read = 0

    async def has(self, nonce: str) -> None:
        """Wait until the server has received this call."""
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while nonce not in self._seen:
            assert asyncio.get_running_loop().time() < deadline, f"{nonce} did not get there"
            await asyncio.sleep(0.005)
            with self.path.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._seen.update(whole.decode().splitlines())
            self._read += len(whole + newline)


async def hangs_up(port: int, nonce: str, book: Book, *, soon: bool) -> None:
    """A modern client that leaves: its connection is all there is to close."""
    speaker = Speaker(port, modern=True)
    await speaker.open()
    try:
        speaker.call(1, "hang", {"text": nonce})
        if not soon:
            await book.has(nonce)
    finally:
        await speaker.close()


async def takes_back(asker: Speaker, other: Speaker, id: int, nonce: str, book: Book) -> None:
    """A legacy client that cancels, on another connection of the same session."""
    asker.call(id, "hang", {"text": nonce})
    if id % 4:
        await book.has(nonce)
    params = {"requestId": id}
    other.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    await other.receive()
    _, answer = await asker.receive()
    assert answer == {}, "a cancelled call has no answer"


async def disconnects(port: int, many: int, book: Book, name: str) -> None:
    todo = iter(range(many))

    async def one_after_another() -> None:
        for number in todo:
            await hangs_up(port, f"{name}-{number}", book, soon=number % 4 == 0)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_another())


async def cancels(port: int, many: int, book: Book, name: str) -> None:
    async def one_session(number: int, asker: Speaker) -> None:
        other = asker.again()
        await other.open()
        for id in range(1, many // AT_ONCE + 1):
            await takes_back(asker, other, id, f"{name}-{number}-{id}", book)
        assert (await asker.called(0, "echo", "still here"))["result"]
        await other.close()
        await asker.leave()

    async with speaking(port, AT_ONCE, eras=(False,)) as askers, asyncio.TaskGroup() as group:
        for number, asker in enumerate(askers):
            group.create_task(one_session(number, asker))


def test_aborted_calls_over_http_leave_nothing_behind(tmp_path: Path) -> None:
    home, book = tmp_path / "home", Book(tmp_path / "ledger")
    served = Served(home, "--", *ledger(book.path))
    try:
        until((home / "state" / "control" / f"{served.process.pid}.sock").exists, "no socket")
        # As many calls at once as later, so that everything kept for reuse exists.
        asyncio.run(disconnects(served.port, 5 * AT_ONCE, book, "first"))
        asyncio.run(cancels(served.port, 5 * AT_ONCE, book, "second"))
        until(lambda: holds(served, home).busy == 0, "calls are still under way")
        before, memory = holds(served, home), served.rss_kib()
        asyncio.run(disconnects(served.port, DISCONNECTS, book, "third"))
        comes_back(served, home, before)
        asyncio.run(cancels(served.port, CANCELS, book, "fourth"))
        comes_back(served, home, before)
        assert served.rss_kib() - memory < MOST_GROWTH_KIB
    finally:
        served.stop()


def test_calls_cancelled_over_stdio_leave_nothing_behind(tmp_path: Path) -> None:
    home, book = tmp_path / "home", tmp_path / "ledger"
    with Standing(home, "--", *ledger(book), watched=False) as wrap:
        wrap.initialize()
        wrap.reachable()

        def abort(many: int) -> None:
            for _ in range(many // AT_ONCE):
                call = {"name": "hang", "arguments": {"text": "stdio"}}
                ids = [wrap.start("tools/call", call) for _ in range(AT_ONCE)]
                for id in ids:
                    notice = {"method": "notifications/cancelled", "params": {"requestId": id}}
                    wrap.send({"jsonrpc": "2.0", **notice})
            assert wrap.said("echo", text="still here") == "still here"

        abort(5 * AT_ONCE)
        before, memory = holds(wrap, home), wrap.rss_kib()
        abort(STDIO_CANCELS)
        comes_back(wrap, home, before)
        assert wrap.rss_kib() - memory < MOST_GROWTH_KIB
        assert not wrap.received_before(), "a cancelled call has no answer"
    reached = book.read_text().splitlines()
    assert len(reached) > STDIO_CANCELS // 2, "they were to be cancelled under way"
