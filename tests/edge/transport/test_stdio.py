"""stdio: one client, many calls at once, and an orderly end."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico import Context, Server
from portico.core.model.message import Request, Response
from portico.core.model.types import Handler, Link
from portico.edge.transport.pipes import StdioServer
from tests.support.messages import initialize, modern, request


class Wire:
    """The client's end of an in-memory connection."""

    def __init__(self, server: Server, links: Sequence[Link] = (), **options: Any) -> None:
        self.lines: asyncio.Queue[Any] = asyncio.Queue()
        self.server = StdioServer(server.endpoint(links), self._written, **options)

    def _written(self, parts: tuple[bytes, ...]) -> None:
        line = b"".join(parts)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.lines.put_nowait(json.loads(line))

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.server.received(json.dumps(message).encode() + b"\n")

    async def next(self) -> Any:
        return await asyncio.wait_for(self.lines.get(), 10)


@pytest.fixture
def server() -> Server:
    server = Server("t")
    server.started = asyncio.Event()  # type: ignore[attr-defined]
    server.stopped = asyncio.Event()  # type: ignore[attr-defined]
    server.go_on = asyncio.Event()  # type: ignore[attr-defined]

    @server.tool
    async def wait() -> str:
        """Wait for the test."""
        server.started.set()  # type: ignore[attr-defined]
        try:
            await server.go_on.wait()  # type: ignore[attr-defined]
        finally:
            server.stopped.set()  # type: ignore[attr-defined]
        return "went on"

    @server.tool
    async def stubborn() -> str:
        """Ignore cancellation."""
        server.started.set()  # type: ignore[attr-defined]
        try:
            await server.go_on.wait()  # type: ignore[attr-defined]
        except asyncio.CancelledError:
            server.stopped.set()  # type: ignore[attr-defined]
        return "answered anyway"

    @server.tool
    async def ask(context: Context) -> str:
        """Request the roots."""
        return json.dumps(await context.roots())

    return server


CALL = {"name": "wait"}


async def test_all_answers_to_one_read_are_written_at_once(server: Server) -> None:
    @server.tool
    async def echo(text: str) -> str:
        return text

    writes: list[bytes] = []
    client = StdioServer(server.endpoint(), lambda parts: writes.append(b"".join(parts)))
    calls = [
        request("tools/call", {"name": "echo", "arguments": {"text": "x"}}, id=n) for n in range(9)
    ]
    messages = [initialize("2025-11-25"), *calls[:4], request("tools/list", id=20), *calls[4:]]
    client.received(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    assert len(writes) == 1, "before the read is over, and in one write"
    answers = [json.loads(line) for line in writes[0].splitlines()]
    assert [answer["id"] for answer in answers[1:]] == [0, 1, 2, 3, 20, 4, 5, 6, 7, 8]
    client.disconnected()


async def test_other_requests_are_answered_while_a_call_runs(server: Server) -> None:
    wire = Wire(server)
    wire.send(initialize(), request("tools/call", CALL, 1), request("ping", id=2))
    assert (await wire.next())["id"] == 0
    assert (await wire.next())["id"] == 2
    server.go_on.set()  # type: ignore[attr-defined]
    assert (await wire.next())["id"] == 1


@pytest.mark.parametrize("make", [request, modern])
async def test_a_cancelled_call_is_stopped_and_gets_no_answer(server: Server, make: Any) -> None:
    wire = Wire(server)
    wire.send(initialize(), make("tools/call", CALL, id=1))
    await wire.next()
    await server.started.wait()  # type: ignore[attr-defined]
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    wire.send(cancel)
    await server.stopped.wait()  # type: ignore[attr-defined]
    wire.send(request("ping", id=1))
    assert await wire.next() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_cancellation_is_obeyed_even_before_the_call_began(server: Server) -> None:
    wire = Wire(server)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    wire.send(initialize(), request("tools/call", CALL, 1), cancel, request("ping", id=2))
    assert [(await wire.next())["id"] for _ in range(2)] == [0, 2]
    await wire.server.drain(5)
    assert wire.lines.empty()


@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": 99}, {"requestId": None}, {"requestId": {}}, {"x": 1}]
)
async def test_a_cancellation_of_nothing_is_ignored(server: Server, params: Any) -> None:
    wire = Wire(server)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    if params is not None:
        cancel["params"] = params
    wire.send(initialize(), cancel, request("ping", id=2))
    assert [(await wire.next())["id"] for _ in range(2)] == [0, 2]


async def test_an_id_already_in_flight_is_refused_and_the_first_call_goes_on(
    server: Server,
) -> None:
    wire = Wire(server)
    wire.send(initialize(), request("tools/call", CALL, "\u00e9"))
    await wire.next()
    wire.server.received(b'{"jsonrpc":"2.0","id":"\\u00e9","method":"ping"}\n')
    refused = await wire.next()
    assert refused["error"]["code"] == -32600
    server.go_on.set()  # type: ignore[attr-defined]
    assert (await wire.next())["result"]["content"][0]["text"] == "went on"


async def test_an_id_may_be_used_again_as_soon_as_its_answer_is_written(server: Server) -> None:
    answers: asyncio.Queue[Any] = asyncio.Queue()
    again = json.dumps(request("tools/call", CALL, 1)).encode() + b"\n"
    left = 3

    def written(parts: tuple[bytes, ...]) -> None:
        answers.put_nowait(json.loads(b"".join(parts)))
        nonlocal left
        left -= 1
        if left >= 0:
            stdio.received(again)  # the fastest possible client

    server.go_on.set()  # type: ignore[attr-defined]
    stdio = StdioServer(server.endpoint(()), written)
    stdio.received(json.dumps(initialize()).encode() + b"\n")
    assert ["result" in await answers.get() for _ in range(4)] == [True] * 4


async def test_a_question_reaches_the_client_and_its_answer_the_handler(server: Server) -> None:
    wire = Wire(server)
    wire.send(initialize(capabilities={"roots": {}}), request("tools/call", {"name": "ask"}, 1))
    await wire.next()
    question = await wire.next()
    assert question["method"] == "roots/list"
    wire.send({"jsonrpc": "2.0", "id": "nobody", "result": {}})
    wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///"}]}})
    wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
    assert (await wire.next())["result"]["content"][0]["text"] == '[{"uri": "file:///"}]'


async def test_a_question_is_taken_back_when_its_call_is_cancelled(server: Server) -> None:
    wire = Wire(server)
    wire.send(initialize(capabilities={"roots": {}}), request("tools/call", {"name": "ask"}, 1))
    await wire.next()
    question = await wire.next()
    wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    cancellation = await wire.next()
    assert cancellation["method"] == "notifications/cancelled"
    assert cancellation["params"]["requestId"] == question["id"]


async def test_a_refused_question_fails_only_its_call(server: Server) -> None:
    wire = Wire(server)
    wire.send(initialize(capabilities={"roots": {}}), request("tools/call", {"name": "ask"}, 1))
    await wire.next()
    question = await wire.next()
    wire.send({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}})
    answer = await wire.next()
    assert answer["result"]["isError"]


async def test_a_batch_is_answered_with_a_batch_in_2025_03_26_only(server: Server) -> None:
    wire = Wire(server)
    wire.send(initialize("2025-03-26"))
    await wire.next()
    server.go_on.set()  # type: ignore[attr-defined]
    notice = {"jsonrpc": "2.0", "method": "notifications/x"}
    wire.send([request("tools/call", CALL, 1), notice, request("ping", id=2), 5])
    answers = await wire.next()
    assert {answer.get("id") for answer in answers} == {1, 2, None}
    wire.send([notice], request("ping", id=3))
    assert (await wire.next())["id"] == 3, "a batch of notifications has no answer"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}}
    server.go_on.clear()  # type: ignore[attr-defined]
    wire.send([request("tools/call", CALL, 4), request("ping", id=5)], cancel)
    assert [answer["id"] for answer in await wire.next()] == [5]


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in a batch"])
async def test_notifications_reach_the_links_and_have_no_answer(server: Server, many: bool) -> None:
    seen: list[str] = []
    go_on = asyncio.Event()

    def slow(inner: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            if not request.id:
                seen.append(request.method)
                await go_on.wait()
            return await inner(request, context)

        return handle

    wire = Wire(server, [slow])
    wire.send(initialize("2025-03-26"))
    await wire.next()
    notices = [{"jsonrpc": "2.0", "method": f"notifications/{name}"} for name in "abc"]
    wire.send(*([notices] if many else notices), request("ping", id=3))
    assert (await wire.next())["id"] == 3
    assert seen == ["notifications/a", "notifications/b", "notifications/c"]
    drained = asyncio.create_task(wire.server.drain(10))
    go_on.set()
    await drained
    assert wire.lines.empty()


async def test_a_line_over_the_limit_is_refused_and_the_next_one_is_read(server: Server) -> None:
    wire = Wire(server, max_line=1000)
    wire.send(initialize())
    await wire.next()
    wire.server.received(b"x" * 5000)
    wire.server.received(b"x" * 5000 + b"\n")
    refused = await wire.next()
    assert refused["error"]["code"] == -32600
    assert "id" not in refused
    wire.send(request("ping", id=1))
    assert (await wire.next())["id"] == 1


@pytest.mark.parametrize("order", [("jsonrpc", "id", "method", "params"), None])
async def test_a_request_over_the_limit_is_refused_by_its_id(
    server: Server, order: tuple[str, ...] | None
) -> None:
    wire = Wire(server, max_line=1000)
    wire.send(initialize())
    await wire.next()
    message = request("tools/call", {"name": "echo", "arguments": {"id": 9, "x": "y" * 5000}}, "a")
    keys = order or ("method", "params", "jsonrpc", "id")
    wire.send({key: message[key] for key in keys})
    refused = await wire.next()
    assert (refused["id"], refused["error"]["code"]) == ("a", -32600)


async def test_a_drain_lets_running_calls_finish_and_takes_no_new_ones(server: Server) -> None:
    wire = Wire(server)
    wire.send(initialize(), request("tools/call", CALL, 1))
    listen = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=2)
    wire.send(listen)
    await wire.next()
    await server.started.wait()  # type: ignore[attr-defined]
    assert (await wire.next())["method"] == "notifications/subscriptions/acknowledged"
    draining = asyncio.ensure_future(wire.server.drain(10))
    assert (await wire.next())["id"] == 2, "the listen stream ends with its result"
    wire.send(request("ping", id=3))
    refused = await wire.next()
    assert (refused["id"], refused["error"]["code"]) == (3, -32603)
    server.go_on.set()  # type: ignore[attr-defined]
    assert (await wire.next())["id"] == 1
    await draining


async def test_a_drain_ends_in_time_whatever_the_calls_do(server: Server) -> None:
    wire = Wire(server)
    wire.send(initialize(), request("tools/call", CALL, 1))
    await server.started.wait()  # type: ignore[attr-defined]
    await wire.next()
    await asyncio.wait_for(wire.server.drain(0.01), 5)
    refused = await wire.next()
    assert (refused["id"], refused["error"]["message"]) == (1, "the server is shutting down")
    await server.stopped.wait()  # type: ignore[attr-defined]
    await wire.server.calls.wait_idle()
    assert wire.server.calls.running == {}


async def test_a_client_that_leaves_cancels_its_calls_and_hears_nothing_more(
    server: Server,
) -> None:
    wire = Wire(server)
    wire.send(initialize(), request("tools/call", {"name": "stubborn"}, 1))
    await wire.next()
    await server.started.wait()  # type: ignore[attr-defined]
    wire.server.disconnected()
    await server.stopped.wait()  # type: ignore[attr-defined]
    await wire.server.calls.wait_idle()
    assert wire.lines.empty()


# The same over real pipes.

PRINTER = '''
import asyncio, sys
from portico import Server
print("printed while loading")
server = Server("printer")

@server.tool
async def loud() -> str:
    """Print."""
    print("printed while running")
    return "done"

@server.tool
async def slow() -> str:
    """Take a moment."""
    sys.stderr.write("slow began\\n")
    await asyncio.sleep(0.3)
    return "done"

@server.tool
def stuck() -> str:
    """Never return."""
    import threading
    sys.stderr.write("stuck began\\n")
    threading.Event().wait()
    return ""
'''


@asynccontextmanager
async def child(tmp_path: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    file = tmp_path / "printer.py"
    file.write_text(PRINTER)
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "portico", "run", str(file), *options)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def send_messages(process: asyncio.subprocess.Process, *messages: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    await process.stdin.drain()


async def line(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    return await asyncio.wait_for(stream.readline(), 20)


async def test_nothing_that_is_printed_reaches_the_client(tmp_path: Path) -> None:
    async with child(tmp_path) as process:
        await send_messages(process, initialize(), request("tools/call", {"name": "loud"}, 1))
        for id in (0, 1):
            assert json.loads(await line(process.stdout))["id"] == id
        assert await line(process.stderr) == b"printed while loading\n"
        assert await line(process.stderr) == b"printed while running\n"


async def test_sigterm_lets_a_running_call_finish_and_exits_with_0(tmp_path: Path) -> None:
    async with child(tmp_path) as process:
        await send_messages(process, initialize(), request("tools/call", {"name": "slow"}, 1))
        await line(process.stdout)
        while await line(process.stderr) != b"slow began\n":
            pass
        process.send_signal(signal.SIGTERM)
        assert json.loads(await line(process.stdout))["id"] == 1
        assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_a_stuck_plain_function_does_not_keep_the_process(tmp_path: Path) -> None:
    async with child(tmp_path, "--drain", "0.1") as process:
        await send_messages(process, initialize(), request("tools/call", {"name": "stuck"}, 1))
        while await line(process.stderr) != b"stuck began\n":
            pass
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_closed_input_is_the_end_but_what_was_asked_is_answered(tmp_path: Path) -> None:
    async with child(tmp_path) as process:
        await send_messages(process, initialize(), request("tools/call", {"name": "slow"}, 1))
        assert process.stdin is not None
        process.stdin.close()
        for id in (0, 1):
            assert json.loads(await line(process.stdout))["id"] == id
        assert await asyncio.wait_for(process.wait(), 20) == 0


@pytest.mark.parametrize("stdin", ["file", "null"])
async def test_files_and_devices_serve_as_input_too(tmp_path: Path, stdin: str) -> None:
    file = tmp_path / "printer.py"
    file.write_text(PRINTER)
    given = tmp_path / "in"
    given.write_text(json.dumps(request("ping")) + "\n")
    with open("/dev/null" if stdin == "null" else given) as source:  # noqa: ASYNC230
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "portico", "run", str(file)),
            stdin=source,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    assert out == (b"" if stdin == "null" else b'{"jsonrpc":"2.0","id":1,"result":{}}\n')


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a device that is full")
async def test_a_disk_that_is_full_is_told_of_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "printer.py"
    file.write_text(PRINTER)
    given = tmp_path / "in"
    given.write_text("".join(json.dumps(request("ping", id=id)) + "\n" for id in (1, 2)))
    with given.open() as source, open("/dev/full", "wb") as full:  # noqa: ASYNC230
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "portico", "run", str(file)),
            stdin=source,
            stdout=full,
            stderr=asyncio.subprocess.PIPE,
        )
        _, stderr = await asyncio.wait_for(process.communicate(), 20)
    report = b"portico: cannot write responses: No space left on device\n"
    assert stderr == b"printed while loading\n" + report
