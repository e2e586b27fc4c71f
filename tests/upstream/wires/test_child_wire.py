"""A child process may misbehave in every way: only what it must fail fails, and nothing stays."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.errors import McpError, TargetError
from portico.edge.client.client import Client
from portico.edge.client.connect import connect
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.wires.child_wire import Command
from tests.upstream.connections.fakes import WAIT_S, bad_server

SMALL = 1_000_000


async def opened(address: Command, **options: Any) -> Client:
    return await connect(address, era="legacy", limits=HandshakeLimits(**options))


async def failure_of(client: Client, timeout: float | None = None) -> TargetError:
    with pytest.raises(TargetError) as caught:
        await client.call_tool("act", timeout=timeout)
    return caught.value


async def text_of(client: Client) -> str:
    answer = await client.call_tool("act")
    text: str = answer["content"][0]["text"]
    return text


async def test_a_server_that_dies_mid_call_fails_it_at_once_with_its_last_words() -> None:
    address = bad_server("dies", env={"TOKEN": "SECRET-VALUE"})
    async with await opened(address) as client:
        async with asyncio.timeout(WAIT_S):
            error = await failure_of(client)
    assert error.kind == "exited"
    assert error.server == "dies"
    assert error.details["exit_code"] == 3
    assert "exited with code 3" in str(error)
    assert "loading the model" in str(error)
    assert "token=*** is bad \\x1b[31m" in error.details["stderr"]
    assert "SECRET" not in str(error)


async def test_a_killed_server_is_named_with_its_signal() -> None:
    async with await opened(bad_server("killed")) as client:
        error = await failure_of(client)
    assert "was killed by SIGKILL" in str(error)


async def test_where_there_is_no_pidfd_an_end_is_noticed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    async with await opened(bad_server("dies")) as client:
        assert "exited with code 3" in str(await failure_of(client))


async def test_all_pending_calls_fail_when_the_server_dies_and_later_ones_at_once() -> None:
    async with await opened(bad_server("half-a-line")) as client:
        pending = await asyncio.gather(
            *(client.call_tool("act") for _ in range(5)), return_exceptions=True
        )
        assert [type(outcome) for outcome in pending] == [TargetError] * 5
        assert "exited with code 0" in str(await failure_of(client))


async def test_a_server_that_closes_its_output_is_lost_though_it_lives() -> None:
    async with await opened(bad_server("closes-stdout", stdin_grace_s=0.1)) as client:
        error = await failure_of(client)
    assert error.kind == "closed"


async def test_garbage_between_messages_is_counted_and_passed_over() -> None:
    async with await opened(bad_server("garbage")) as client:
        assert await text_of(client) == "ok"
        assert client.exchange.garbage >= 4


@pytest.mark.parametrize("mode", ["huge", "huge-id-last"])
async def test_a_message_over_the_limit_fails_its_own_call_only(mode: str) -> None:
    async with await opened(bad_server(mode, max_line=SMALL)) as client:
        error = await failure_of(client)
        assert f"longer than {SMALL} bytes" in str(error)
        assert len(await client.list_tools()) == 1


async def test_a_line_without_end_ends_the_server() -> None:
    async with await opened(bad_server("endless", max_line=SMALL)) as client:
        error = await failure_of(client)
    assert error.kind == "too_large"
    assert "without a newline" in str(error)


async def test_wrong_ids_are_ignored_and_the_first_answer_wins() -> None:
    async with await opened(bad_server("wrong-ids")) as client:
        assert await text_of(client) == "the first"
        await client.list_tools()
        assert client.exchange.unmatched == 7


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("broken-utf8", "not UTF-8"),
        ("surrogate", "sent a"),
        ("deep", "nested"),
        ("nan", "not JSON"),
        ("neither", "neither result nor error"),
    ],
)
async def test_a_broken_answer_fails_its_call_at_once_and_the_next_one_works(
    mode: str, why: str
) -> None:
    async with await opened(bad_server(mode)) as client:
        assert why in str(await failure_of(client))
        assert len(await client.list_tools()) == 1


async def test_a_byte_order_mark_is_forgiven() -> None:
    async with await opened(bad_server("bom")) as client:
        assert await text_of(client) == "ok"


async def test_a_flood_on_stderr_holds_nothing_up() -> None:
    async with await opened(bad_server("floods-stderr")) as client:
        assert await text_of(client) == "ok"


async def test_a_flood_of_garbage_ends_the_server() -> None:
    async with await opened(bad_server("floods-stdout")) as client:
        error = await failure_of(client)
    assert error.kind == "garbage"
    assert "that are not messages" in str(error)


async def test_a_call_without_answer_runs_out() -> None:
    async with await opened(bad_server("silent")) as client:
        error = await failure_of(client, timeout=0.05)
        assert error.kind == "timeout"
        assert "did not answer tools/call within 0.05 s" in str(error)
        assert len(await client.list_tools()) == 1


async def test_a_server_that_stops_reading_fails_the_call_not_the_client() -> None:
    address = bad_server("stops-reading", stdin_grace_s=0.1, term_grace_s=1)
    async with await opened(address) as client:
        big = {"text": "x" * 1_000_000}
        calls = [client.call_tool("act", big, timeout=0.2) for _ in range(3)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(outcome, "kind", None) for outcome in outcomes] == ["timeout"] * 3


async def test_a_server_that_does_not_start_is_quoted() -> None:
    with pytest.raises(TargetError, match="exited with code 2") as caught:
        await connect(bad_server("exits-at-once"))
    assert caught.value.details["stderr"] == "no API key"


async def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(
        TargetError, match=r"there is no command 'no-such-command'; check its name and your PATH$"
    ):
        await connect(Command(("no-such-command",)))


async def test_a_launcher_that_is_not_there_is_named_with_what_brings_it(tmp_path: Path) -> None:
    nowhere = {"PATH": str(tmp_path)}
    with pytest.raises(TargetError, match=r"no command 'uvx'; install uv \(https://docs\.astral"):
        await connect(Command(("uvx", "mcp-server-time"), environment=nowhere))


async def test_a_file_that_is_not_on_the_path_is_told_with_how_to_name_it(tmp_path: Path) -> None:
    (tmp_path / "server.py").touch()
    with pytest.raises(TargetError, match=r"no command 'server\.py'; .* write \./server\.py"):
        await connect(Command(("server.py",), cwd=str(tmp_path)))


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"#!/bin/sh\n", 0o644, r"'\./server' is not executable; `chmod \+x` it"),
        (b"#!/no/such/shell\n", 0o755, r"interpreter in the first line of '\./server' does not"),
        (b"#!/bin/sh\r\n", 0o755, r"interpreter in the first line of '\./server' does not"),
        (
            b"echo hello\n",
            0o755,
            r"'\./server' is not a program, nor a script whose first line is #!",
        ),
        (None, 0o755, r"'\./server' is a folder"),
    ],
)
async def test_what_cannot_be_executed_is_told_with_the_reason(
    content: bytes | None, mode: int, words: str, tmp_path: Path
) -> None:
    server = tmp_path / "server"
    if content is None:
        server.mkdir()
    else:
        server.write_bytes(content)
    server.chmod(mode)
    with pytest.raises(TargetError, match=words):
        await connect(Command(("./server",), cwd=str(tmp_path)))


async def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(TargetError, match="there is no folder /no/such/folder"):
        await connect(Command(("true",), cwd="/no/such/folder"))


async def test_a_server_gets_our_environment_and_what_is_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OURS", "ours")
    code = "import os, sys; sys.stderr.write(os.environ['OURS'] + os.environ['ADDED']); sys.exit(1)"
    with pytest.raises(TargetError, match=r"ours\+more"):
        await connect(Command(("python3", "-c", code), env={"ADDED": "+more"}))


@pytest.mark.parametrize("mode", ["stubborn", "leaves-one-behind"])
async def test_no_grandchild_survives_the_end(mode: str, tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    address = bad_server(mode, str(fifo), stdin_grace_s=0.1, term_grace_s=0.1)
    client = await opened(address)
    with await asyncio.to_thread(open, fifo, "rb", 0) as alive:
        assert await asyncio.to_thread(alive.read, 5) == b"alive"
        await client.close()
        # Its end of the FIFO closes only with the process.
        assert await asyncio.wait_for(asyncio.to_thread(alive.read, 1), WAIT_S) == b""


async def test_a_cancelled_close_still_leaves_nothing_behind(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    client = await opened(bad_server("stubborn", str(fifo), stdin_grace_s=60))
    with await asyncio.to_thread(open, fifo, "rb", 0) as alive:
        assert await asyncio.to_thread(alive.read, 5) == b"alive"
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        assert await asyncio.wait_for(asyncio.to_thread(alive.read, 1), WAIT_S) == b""


@pytest.mark.parametrize("turns", range(4))
async def test_giving_up_during_the_start_leaves_nothing_behind(turns: int, tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    opening = asyncio.create_task(opened(bad_server("stubborn", str(fifo), stdin_grace_s=0.1)))
    for _ in range(turns):  # of the event loop: somewhere between nothing and a running child
        await asyncio.sleep(0)
    opening.cancel()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(asyncio.CancelledError):
            await opening
    # If it was started at all, it is killed: whoever has the other end open is about to let go.
    alive = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(alive, True)
    assert await asyncio.wait_for(asyncio.to_thread(os.read, alive, 5), WAIT_S) == b""
    os.close(alive)


async def test_a_server_that_leaves_when_asked_to_discover_is_started_again() -> None:
    async with await connect(bad_server("dies-of-discover")) as client:
        assert not client.modern
        assert await text_of(client) == "ok"


async def test_a_server_that_ignores_what_it_does_not_know_is_greeted_the_legacy_way() -> None:
    async with await connect(
        bad_server("ignores-discover"), limits=HandshakeLimits(probe_s=0.05)
    ) as client:
        assert not client.modern
        assert await text_of(client) == "ok"


async def test_an_error_of_the_server_passes_through() -> None:
    async with await opened(bad_server("silent")) as client:
        with pytest.raises(McpError, match="method not found") as caught:
            await client.request("no/such/method")
    assert caught.value.code == -32601
