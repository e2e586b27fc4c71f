"""A connection: one client's messages in, ours out, whatever carries them."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico import Connection, Context, Endpoint, Request, Response, Server
from tests.support.messages import initialize, modern, request


class Client:
    """The client's end of a connection that carries messages in memory."""

    def __init__(self, endpoint: Endpoint, **options: Any) -> None:
        self.sent: asyncio.Queue[bytes] = asyncio.Queue()
        self.connection = Connection(endpoint, self.sent.put_nowait, **options)

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.connection.receive(json.dumps(message))

    async def next(self) -> Any:
        return json.loads(await asyncio.wait_for(self.sent.get(), 10))


class Stage:
    """A server whose tools wait for the test."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.go_on = asyncio.Event()
        self.server = server = Server("stage")

        @server.tool
        async def wait() -> str:
            self.started.set()
            try:
                await self.go_on.wait()
            finally:
                self.stopped.set()
            return "done"

        @server.tool
        async def count(context: Context, to: int) -> str:
            for step in range(to):
                await context.progress(step)
            return f"counted to {to}"

        @server.tool
        async def requester(context: Context) -> str:
            return f"{context.principal} {context.data}"

        @server.tool
        async def ask(context: Context) -> str:
            return json.dumps(await context.roots())


def call(tool: str, id: Any, progress: str = "", **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if progress:
        params["_meta"] = {"progressToken": progress}
    return request("tools/call", params, id)


def text_of(answer: Any) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


@pytest.mark.parametrize("kind", [str, bytes, bytearray, memoryview])
async def test_a_message_may_be_text_or_bytes(kind: type[Any]) -> None:
    client = Client(Stage().server.endpoint())
    ping = json.dumps(request("ping", id="\u00e9"), ensure_ascii=False)
    client.connection.receive(ping if kind is str else kind(ping.encode()))
    assert await client.next() == {"jsonrpc": "2.0", "id": "\u00e9", "result": {}}


@pytest.mark.parametrize("wrong", [5, None, ["x"], {"jsonrpc": "2.0"}])
async def test_anything_else_is_a_type_error_and_the_connection_stays(wrong: Any) -> None:
    client = Client(Stage().server.endpoint())
    with pytest.raises(TypeError):
        client.connection.receive(wrong)
    client.send(request("ping"))
    assert (await client.next())["id"] == 1


@pytest.mark.parametrize(
    "junk", [b"", b" ", b"\x00\xff\xfe", b"\x89PNG\r\n\x1a\n", "{", "\ud800", '{"id": 1'], ids=repr
)
async def test_a_message_that_is_not_json_is_a_parse_error(junk: bytes | str) -> None:
    client = Client(Stage().server.endpoint())
    client.connection.receive(junk)
    assert (await client.next())["error"]["code"] == -32700
    client.send(request("ping"))
    assert (await client.next())["id"] == 1


@given(junk=st.one_of(st.binary(), st.text(), st.from_type(dict).map(repr)))
def test_no_message_raises_or_gets_two_answers(junk: bytes | str) -> None:
    async def receive() -> int:
        client = Client(Server("empty").endpoint())
        client.connection.receive(junk)
        await client.connection.drain(10)
        return client.sent.qsize()

    assert asyncio.run(receive()) <= 1


@pytest.mark.parametrize("limit", [1000, 300_000])
async def test_a_message_over_the_limit_is_refused_by_its_id(limit: int) -> None:
    client = Client(Stage().server.endpoint(), max_message=limit)
    client.send(request("ping", {"_meta": {"x": "y" * limit}}, id="big"), request("ping", id=2))
    refused = await client.next()
    assert refused["id"] == "big"
    assert refused["error"] == {
        "code": -32600,
        "message": f"the message is longer than {limit} bytes",
    }
    assert (await client.next())["id"] == 2


async def test_connections_of_one_endpoint_use_the_same_ids_and_never_mix_answers() -> None:
    stage = Stage()
    endpoint = stage.server.endpoint()
    clients = [Client(endpoint, principal=f"p{n}", data=n) for n in range(20)]
    for n, client in enumerate(clients):
        client.send(initialize(), call("count", 1, f"t{n}", to=n), call("requester", 2))
    for n, client in enumerate(clients):
        assert (await client.next())["id"] == 0
        received = [await client.next() for _ in range(n + 2)]
        tokens = {m["params"]["progressToken"] for m in received if "method" in m}
        assert tokens <= {f"t{n}"}
        answers = {m["id"]: text_of(m) for m in received if "id" in m}
        assert answers == {1: f"counted to {n}", 2: f"p{n} {n}"}
        assert client.sent.empty()


async def test_an_answer_settles_the_question_of_its_own_connection_only() -> None:
    endpoint = Stage().server.endpoint()
    asked, other = Client(endpoint), Client(endpoint)
    for client in (asked, other):
        client.send(initialize(capabilities={"roots": {}}), call("ask", 1))
        await client.next()
    question, same = await asked.next(), await other.next()
    assert question["id"] == same["id"]
    asked.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
    assert text_of(await asked.next()) == "[]"
    assert other.sent.empty()


async def test_handlers_wait_for_a_slow_reader_and_responses_do_not() -> None:
    client = Client(Stage().server.endpoint())
    client.send(initialize())
    await client.next()
    client.connection.pause()
    client.send(call("count", 1, "t", to=2), request("ping", id=2))
    assert (await client.next())["id"] == 2
    assert client.sent.empty()
    client.connection.resume()
    assert [(await client.next()).get("id") for _ in range(3)] == [None, None, 1]


async def test_a_client_that_disconnects_cancels_its_calls_and_gets_nothing_more() -> None:
    stage = Stage()
    client = Client(stage.server.endpoint())
    client.send(initialize(), call("wait", 1))
    await client.next()
    client.connection.disconnected()
    await stage.stopped.wait()
    client.send(request("ping", id=2), call("wait", 3))
    client.connection.receive(b"\xff")
    await client.connection.drain(10)
    client.connection.disconnected()
    assert client.sent.empty()


async def test_a_paused_handler_ends_when_its_client_disconnects() -> None:
    client = Client(Stage().server.endpoint())
    client.connection.pause()
    client.send(initialize(), call("count", 1, "t", to=2))
    await client.next()
    client.connection.disconnected()
    await client.connection.drain(10)
    assert client.sent.empty()


async def test_a_client_that_sends_no_more_still_gets_its_responses() -> None:
    stage = Stage()
    client = Client(stage.server.endpoint())
    client.send(initialize(capabilities={"roots": {}}), call("wait", 1), call("ask", 2))
    await client.next()
    await client.next()  # the question
    client.connection.input_closed()
    assert (await client.next())["result"]["isError"], "nobody can answer the question"
    stage.go_on.set()
    assert text_of(await client.next()) == "done"


async def test_a_drain_ends_streams_and_refuses_calls_that_outlast_it() -> None:
    stage = Stage()
    client = Client(stage.server.endpoint())
    client.send(modern("subscriptions/listen", {"notifications": {}}, id="stream"))
    await client.next()
    client.send(initialize(), call("wait", 1))
    await client.next()
    await stage.started.wait()
    drained = asyncio.create_task(client.connection.drain(0.01))
    assert (await client.next())["id"] == "stream"
    client.send(request("ping", id=2))
    refusals = [await client.next(), await client.next()]
    assert [(r["id"], r["error"]["data"]["kind"]) for r in refusals] == [
        (2, "closed"),
        (1, "closed"),
    ]
    await drained


class Multiline:
    """An endpoint of another making: its result contains line breaks."""

    def handle(self, request: Request, context: Context) -> Response:
        return Response(id=request.id, result=b'{\r\n"a":\n1}')


async def test_a_message_to_the_client_contains_no_line_break() -> None:
    client = Client(Multiline())
    client.send(modern("tools/list", id=1))
    sent = await client.sent.get()
    assert json.loads(sent)["result"] == {"a": 1}
    assert not set(sent) & set(b"\r\n")


async def test_messages_that_arrive_during_the_handshake_are_served_after_it() -> None:
    go_on = asyncio.Event()

    class Slow:
        """An endpoint that takes its time for the handshake."""

        def __init__(self, inner: Endpoint) -> None:
            self._inner = inner

        async def handle(self, request: Request, context: Context) -> Response:
            if request.method == "initialize":
                await go_on.wait()
            return await self._inner.handle(request, context)

    client = Client(Slow(Stage().server.endpoint()))
    client.send(initialize(), call("count", 1, to=0))
    assert client.sent.empty()
    go_on.set()
    assert [(await client.next())["id"] for _ in range(2)] == [0, 1]
