"""A legacy client's call at a modern upstream that sends questions, valid or not."""

import asyncio
from typing import Any

import msgspec
import pytest

from portico.core.model.context import Context
from portico.core.model.errors import AskError
from portico.core.model.message import Request
from portico.core.model.session import Session
from portico.core.model.version import Version
from portico.library.chain.endpoint import ChainEndpoint
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from tests.upstream.connections.fakes import Fake, FakeWire, Message, modern, result

TOOL = {"name": "it", "inputSchema": {"type": "object"}}


async def called(
    answer: dict[str, Any], session: Session, params: bytes = b'{"name":"it"}'
) -> dict[str, Any]:
    """Return the client's response if this is the only result of the upstream."""

    def script(message: Message) -> list[Message]:
        if message.get("method") == "tools/call":
            return [result(message, answer or {"got": message["params"]})]
        if message.get("method") == "tools/list":
            return [result(message, {"tools": [TOOL]})]
        return modern(message, tools={})

    upstream = Upstream(Fake([FakeWire(script)]), UpstreamPolicy(era="modern"))
    endpoint = ChainEndpoint(upstream, [upstream], [], lambda request, error: None)
    request = Request(method="tools/call", id=b"1", params=params, name="it")
    try:
        response = await endpoint.handle(request, Context(session=session))
    finally:
        await upstream.close()
    decoded: dict[str, Any] = msgspec.json.decode(b"".join(response.parts))
    return decoded


def client(**capabilities: Any) -> Session:
    session = Session(lambda _: None)
    session.version = Version.V2025_11_25
    session.capabilities, session.client_info = capabilities, {"name": "test", "version": "1"}
    return session


def asks(**questions: Any) -> dict[str, Any]:
    return {"resultType": "input_required", "inputRequests": questions}


async def test_large_arguments_cross_the_eras_whole() -> None:
    arguments = {"text": "x" * 1_000_000}
    params = {"name": "it", "arguments": arguments, "_meta": {"own": 1, "progressToken": "t"}}
    answer = await called({}, client(), msgspec.json.encode(params))
    got = answer["result"]["got"]
    assert (got["name"], got["arguments"], got["_meta"]["own"]) == ("it", arguments, 1)


async def test_a_result_of_no_known_type_is_a_result() -> None:
    answer = await called({"resultType": 5, "content": []}, client())
    assert answer["result"] == {"content": []}


@pytest.mark.parametrize("question", [{}, {"method": 5}, 7])
async def test_a_question_that_is_none_is_the_servers_fault(question: Any) -> None:
    answer = await called(asks(first=question), client())
    assert answer["error"]["message"] == "fake sent an invalid question (first)"
    assert answer["error"]["data"]["kind"] == "protocol"


async def test_where_one_question_is_refused_the_others_are_taken_back() -> None:
    both, taken_back = asyncio.Event(), asyncio.Event()

    async def ask(method: str, params: bytes) -> bytes:
        if method == "roots/list":
            await both.wait()
            raise AskError("no", -1)
        both.set()
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.set()
        return b"{}"

    session = client(roots={}, elicitation={})
    session.ask = ask
    elicit = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
    answer = await called(asks(a={"method": "roots/list"}, b=elicit), session)
    assert answer["error"]["message"] == "no"
    assert taken_back.is_set()
