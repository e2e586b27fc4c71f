"""Whatever a handler or a link does, its asker gets an answer, and nobody else notices."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from portico import (
    Context,
    InvalidParams,
    MissingCapability,
    Request,
    Response,
    Server,
    ToolError,
    ToolResult,
    Version,
)
from portico.core.model.message import NOTHING
from portico.core.model.session import Session
from portico.core.model.types import Handler
from tests.support.messages import (
    LEGACY,
    MODERN,
    call,
    error,
    modern,
    modern_meta,
    request,
    result,
)

NOT_EXCEPTIONS = [asyncio.CancelledError, BaseException, SystemExit, KeyboardInterrupt]


class Panic(BaseException):
    """As extensions written in Rust raise it."""


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (KeyError("city"), "find failed: KeyError: 'city'"),
        (ZeroDivisionError(), "find failed: ZeroDivisionError"),
        (ToolError("no such city"), "no such city"),
    ],
)
async def test_a_failing_tool_names_the_type_of_its_exception(
    raised: Exception, words: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    server = Server("t")

    @server.tool
    async def find() -> str:
        """Fail."""
        raise raised

    assert (await call(server, "find", {}, version))["content"][0]["text"] == words


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
@pytest.mark.parametrize("kind", [*NOT_EXCEPTIONS, Panic])
async def test_a_handler_that_raises_no_exception_is_answered_for(
    kind: type[BaseException], version: str
) -> None:
    server = Server("t")

    @server.tool
    async def on_the_loop() -> str:
        """Raise."""
        raise kind

    @server.tool
    def in_a_thread() -> str:
        """Raise."""
        raise kind

    for name in ("on_the_loop", "in_a_thread"):
        answer = await call(server, name, {}, version)
        assert answer["isError"]
        assert answer["content"][0]["text"] == f"{name} failed: the handler raised {kind.__name__}"


async def test_a_handler_that_waits_for_what_was_cancelled_elsewhere_is_answered_for() -> None:
    server = Server("t")

    @server.tool
    async def impatient() -> str:
        """Wait for a task that somebody else cancels."""
        inner = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner
        return "never"

    assert (await call(server, "impatient", {}))["isError"]


async def failing(*errors: Exception) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(fail(error))


async def test_what_fails_in_a_task_group_is_told_as_if_there_were_none() -> None:
    server = Server("t")

    @server.tool
    async def find(kind: str) -> str:
        if kind == "said":
            await failing(ToolError("there is no such city"), ToolError("nor that one"))
        elif kind == "params":
            await failing(InvalidParams("no such kind"))
        else:
            await failing(ToolError("there is no such city"), OSError("the disk is full"))
        return "found"

    said = await call(server, "find", {"kind": "said"})
    assert said["content"][0]["text"] == "there is no such city"
    mixed = await call(server, "find", {"kind": "mixed"})
    words = "find failed: there is no such city; OSError: the disk is full"
    assert mixed["content"][0]["text"] == words
    params = {"name": "find", "arguments": {"kind": "params"}}
    assert (await error(server, modern("tools/call", params)))["message"] == "no such kind"


async def test_a_call_that_is_cancelled_stays_cancelled_and_can_be_told() -> None:
    server = Server("t")
    seen: list[Context] = []
    began = asyncio.Event()

    @server.tool
    async def long(context: Context) -> str:
        """Never end."""
        seen.append(context)
        began.set()
        await asyncio.Event().wait()
        return "never"

    running = asyncio.create_task(server.handle(modern("tools/call", {"name": "long"})))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen[0].cancelled


@pytest.mark.parametrize("kind", [asyncio.CancelledError, Panic])
async def test_a_link_that_raises_no_exception_is_an_internal_error(
    kind: type[BaseException],
) -> None:
    def failing(next: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            raise kind

        return handle

    door = Server("t").endpoint([failing])
    answer = await door.handle(Request(method="ping", id=b"1"), Context())
    assert answer.decode()["error"] == {"code": -32603, "message": "internal error"}
    assert (await door.handle(Request(method="notifications/x"), Context())).is_nothing


class Mute(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "words"),
    [(Mute(), "bad failed: Mute"), (ValueError("\ud800"), "bad failed: ValueError: \\ud800")],
)
async def test_an_exception_whose_words_cannot_be_sent_is_a_result_all_the_same(
    raised: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # half a character in a report would end a worker of xdist
    server = Server("t")

    @server.tool
    async def bad() -> str:
        """Fail."""
        raise raised

    answer = await call(server, "bad", {})
    assert answer["isError"]
    assert answer["content"][0]["text"] == words


@pytest.mark.parametrize("made", [lambda: "\ud800", lambda: ToolResult(meta={"a": object()})])
async def test_a_result_that_has_no_json_form_is_the_tools_failure(made: Callable[[], Any]) -> None:
    server = Server("t")
    server.add_tool({"name": "x", "inputSchema": {"type": "object"}}, lambda arguments: made())
    answer = await call(server, "x")
    assert answer["isError"]
    assert "x: the result has no JSON form" in answer["content"][0]["text"]


@pytest.mark.parametrize("message", [{"id": object()}, "\ud800", b"\xff", ["ping"]])
async def test_a_message_that_is_none_is_answered_whatever_it_is(message: Any) -> None:
    answer = await Server("t").handle(message)
    assert answer.code == -32700


async def test_a_message_may_come_in_any_kind_of_bytes() -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    kinds: list[Any] = [bytearray(raw), memoryview(raw)]
    for message in kinds:
        assert (await Server("t").handle(message)).decode()["result"] == {}


async def test_a_call_of_nothing_is_told_what_is_missing() -> None:
    server = Server("t", capabilities=["tools", "prompts"])
    for method, words in (("tools/call", "no tool named"), ("prompts/get", "no prompt named")):
        answer = await error(server, request(method, {}))
        assert (answer["code"], answer["message"]) == (-32602, words)


async def test_a_prompt_names_the_argument_that_is_no_text() -> None:
    server = Server("t")

    @server.prompt
    def trip(city: str, days: int = 1) -> str:
        """Plan a trip."""
        return f"{days} in {city}"

    params = {"name": "trip", "arguments": {"city": "Oslo", "days": 3}}
    refused = await error(server, request("prompts/get", params))
    assert refused["code"] == -32602
    assert refused["message"] == "prompt trip: days: expected string, got integer 3"
    params = {"name": "trip", "arguments": {"city": "Oslo", "days": "3"}}
    shown = await result(server, request("prompts/get", params))
    assert shown["messages"][0]["content"]["text"] == "3 in Oslo"


async def test_a_reference_of_an_unknown_kind_is_invalid_params() -> None:
    server = Server("t", capabilities=["completions"])
    params = {"ref": {"type": "ref/x", "name": "p"}, "argument": {"name": "a", "value": ""}}
    assert (await error(server, request("completion/complete", params)))["code"] == -32602


class Listening:
    """A client that keeps what it hears, and declines what it is asked."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    async def notify(self, message: bytes) -> None:
        self.heard.append(message)

    async def ask(self, method: str, params: bytes) -> bytes:
        self.heard.append(params)
        return b'{"action":"decline"}'

    async def closed(self) -> None:
        """It never leaves."""


@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_what_a_handler_left_running_is_not_heard_after_the_answer(version: str) -> None:
    server = Server("t")
    answered, left = asyncio.Event(), []

    async def later(context: Context) -> None:
        await answered.wait()
        await context.progress(2)
        with contextlib.suppress(MissingCapability):
            await context.elicit("Still there?", {"type": "object", "properties": {}})

    @server.tool
    async def hasty(context: Context) -> str:
        """Answer before it is done."""
        await context.progress(1)
        left.append(asyncio.create_task(later(context)))
        return "done"

    client = Listening()
    session = Session(client.heard.append)
    session.capabilities = {"elicitation": {}}
    meta = {"progressToken": "t"} | (modern_meta() if version == MODERN else {})
    message = request("tools/call", {"name": "hasty", "_meta": meta})
    session.version = None if version == MODERN else Version.V2025_11_25
    await result(server, message, Context(peer=client, session=session))
    answered.set()
    await asyncio.gather(*left, return_exceptions=True)
    assert len(client.heard) == 1


@pytest.mark.parametrize("returned", [None, {"result": {}}, NOTHING])
async def test_a_link_that_hands_no_answer_back_is_an_internal_error(returned: Any) -> None:
    def forgetful(next: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            await next(request, context)
            return returned  # type: ignore[no-any-return]

        return handle

    door = Server("t").endpoint([forgetful])
    answer = await door.handle(Request(method="ping", id=b"1"), Context())
    assert answer.decode()["error"] == {"code": -32603, "message": "internal error"}
    assert (await door.handle(Request(method="notifications/x"), Context())).is_nothing
