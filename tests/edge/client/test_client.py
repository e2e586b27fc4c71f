"""The client over a script and over our own server: lists, rounds, headers, questions."""

import asyncio
from typing import Any

import pytest

from portico import Context, Server
from portico.core.model.errors import McpError, TargetError
from portico.edge.client.client import MAX_ROUNDS, Client
from portico.edge.client.client_answers import ClientAnswers
from portico.edge.client.connect import connect
from portico.edge.transport.client_connection import Connection
from portico.upstream.connections import pages as upstream_pages
from portico.upstream.wires.memory_wire import MemoryAddress
from tests.upstream.connections.fakes import (
    Fake,
    FakeWire,
    Message,
    Script,
    error,
    legacy,
    modern,
    result,
)

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


async def talking(
    script: Script, has_headers: bool = False, **options: Any
) -> tuple[Client, FakeWire]:
    """A client of a scripted modern server."""

    def whole(m: Message) -> Any:
        return modern(m, tools={}, resources={}) if m["method"] == "server/discover" else script(m)

    wire = FakeWire(whole, has_headers)
    return await connect(Fake([wire]), era="modern", **options), wire


def called(wire: FakeWire) -> list[dict[str, Any]]:
    """The params of all calls, without the sender's `_meta`."""
    calls = [m["params"] for m in wire.sent if m["method"] == "tools/call"]
    return [{k: v for k, v in params.items() if k != "_meta"} for params in calls]


def pages(*cursors: str | None) -> Script:
    """Pages of one tool each; after each page comes the cursor given for it."""
    left = list(cursors)

    def script(m: Message) -> list[Message]:
        number = len(cursors) - len(left)
        cursor = left.pop(0) if left else None
        page: dict[str, Any] = {"tools": [{"name": f"t{number}", "inputSchema": {}}]}
        if cursor is not None:
            page["nextCursor"] = cursor
        return [result(m, page)]

    return script


async def test_all_pages_are_listed_and_an_empty_cursor_is_a_cursor() -> None:
    client, wire = await talking(pages("a", "", None))
    assert [tool["name"] for tool in await client.list_tools()] == ["t0", "t1", "t2"]
    cursors = [m["params"].get("cursor") for m in wire.sent if m["method"] == "tools/list"]
    assert cursors == [None, "a", ""]


async def test_a_list_weighs_its_definitions_byte_for_byte() -> None:
    tools = '{"name":"a","inputSchema":{}},{"name":"b", "x" : 1}'
    client, _ = await talking(
        lambda m: [f'{{"jsonrpc":"2.0","id":{m["id"]},"result":{{"tools":[{tools}]}}}}'.encode()]
    )
    assert (await client.listing("tools")).size == len(tools) - len(",")


async def test_a_repeated_cursor_is_an_error() -> None:
    client, _ = await talking(pages("a", "b", "a"))
    with pytest.raises(TargetError, match="repeats a cursor in tools/list"):
        await client.list_tools()


async def test_a_list_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_pages, "MAX_PAGES", 10)
    client, _ = await talking(pages(*map(str, range(100))))
    with pytest.raises(TargetError, match="more than 10 pages"):
        await client.list_tools()


@pytest.mark.parametrize("page", [{}, {"tools": {}}, {"tools": [], "nextCursor": 3}])
async def test_a_page_that_is_none_is_an_error(page: Any) -> None:
    client, _ = await talking(lambda m: [result(m, page)])
    with pytest.raises(TargetError, match="sent a page of tools/list that cannot be read"):
        await client.list_tools()


async def test_what_a_server_does_not_offer_is_not_asked_for() -> None:
    client, wire = await talking(lambda _: None)
    assert (await client.listing("prompts")).items == []
    assert "prompts/list" not in wire.methods()


async def test_a_list_that_is_declared_but_missing_is_empty() -> None:
    client, _ = await talking(lambda m: [error(m, -32601)])
    assert (await client.listing("templates")).items == []


async def test_an_entry_that_is_none_or_without_its_key_is_left_out() -> None:
    page = {"tools": [{"title": "?"}, 5, {"name": "a"}]}
    client, _ = await talking(lambda m: [result(m, page)])
    found = await client.listing("tools")
    assert [tool["name"] for tool in found.items] == ["a"]
    assert found.rejected == [
        "an entry of tools/list without name",
        "an entry of tools/list that is not an object",
    ]


async def test_a_list_that_is_refused_says_which_and_by_whom() -> None:
    client, _ = await talking(lambda m: [error(m, -32000)])
    with pytest.raises(TargetError, match=rf"{client.name} failed to answer tools/list: .*-32000"):
        await client.list_tools()


def asking(*rounds: dict[str, Any]) -> Script:
    """A tool that answers with each of these results in turn."""
    left = list(rounds)
    return lambda m: [result(m, left.pop(0) if len(left) > 1 else left[0])]


QUESTION = {"method": "elicitation/create", "params": {"message": "name?"}}
DONE: dict[str, Any] = {"resultType": "complete", "content": []}


def wants(state: str | None = None, **questions: Any) -> dict[str, Any]:
    more: dict[str, Any] = {"requestState": state} if state is not None else {}
    if questions:
        more["inputRequests"] = questions
    return {"resultType": "input_required", **more}


async def ada(params: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"to": params["message"]}}


async def test_input_is_given_and_the_state_comes_back_as_it_was() -> None:
    script = asking(wants("st/äte", who=QUESTION), DONE)
    client, wire = await talking(script, answers=ClientAnswers(elicit=ada))
    assert await client.call_tool("t", {"x": 1}) == DONE
    first, second = called(wire)
    assert first == {"name": "t", "arguments": {"x": 1}}
    answers = {"who": {"action": "accept", "content": {"to": "name?"}}}
    assert second == first | {"requestState": "st/äte", "inputResponses": answers}
    ids = [m["id"] for m in wire.sent]
    assert len(set(ids)) == len(ids)


async def test_a_state_that_did_not_come_is_not_sent() -> None:
    script = asking(wants("s1", a=QUESTION), wants(b=QUESTION), DONE)
    client, wire = await talking(script, answers=ClientAnswers(elicit=ada))
    await client.call_tool("t")
    assert [sorted(params) for params in called(wire)] == [
        ["arguments", "name"],
        ["arguments", "inputResponses", "name", "requestState"],
        ["arguments", "inputResponses", "name"],
    ]


async def test_a_state_alone_is_sent_back_at_once() -> None:
    client, wire = await talking(asking(wants("later"), DONE))
    assert await client.call_tool("t") == DONE
    assert called(wire)[1] == {"name": "t", "arguments": {}, "requestState": "later"}


async def test_questions_without_end_are_an_error() -> None:
    client, wire = await talking(asking(wants("again")))
    with pytest.raises(TargetError, match=f"after {MAX_ROUNDS} rounds of tools/call"):
        await client.call_tool("t")
    assert len(called(wire)) == MAX_ROUNDS


async def test_a_question_we_have_no_answer_for_is_named() -> None:
    client, _ = await talking(asking(wants(x={"method": "sampling/createMessage", "params": {}})))
    with pytest.raises(TargetError, match="does not support sampling/createMessage"):
        await client.call_tool("t")


@pytest.mark.parametrize("bad", [wants(), {"resultType": "input_required", "inputRequests": [1]}])
async def test_asking_for_nothing_is_an_error(bad: dict[str, Any]) -> None:
    client, _ = await talking(asking(bad))
    with pytest.raises(TargetError, match="sent no questions"):
        await client.call_tool("t")


async def test_input_may_not_be_asked_for_by_a_list() -> None:
    client, _ = await talking(lambda m: [result(m, wants("s"))])
    with pytest.raises(TargetError, match="which the protocol does not allow"):
        await client.request("completion/complete")


async def test_an_unknown_kind_of_result_is_the_callers_to_understand() -> None:
    task = {"resultType": "task", "taskId": "1"}
    client, _ = await talking(asking(task))
    assert await client.call_tool("t") == task


REGION = {
    "name": "t",
    "inputSchema": {"properties": {"where": {"type": "string", "x-mcp-header": "Region"}}},
}


async def test_over_http_headers_repeat_the_request_and_the_arguments_a_tool_wants() -> None:
    def script(m: Message) -> list[Message]:
        return [result(m, {"tools": [REGION]} if m["method"] == "tools/list" else DONE)]

    client, wire = await talking(script, has_headers=True)
    await client.call_tool("t", {"where": "Zürich", "more": 1})
    assert wire.headers[-1] == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "t",
        "mcp-param-region": "=?base64?WsO8cmljaA==?=",
    }
    await client.call_tool("t", {"where": None})
    assert "mcp-param-region" not in wire.headers[-1]
    await client.request("resources/read", {"uri": "file:///ä"})
    assert wire.headers[-1]["mcp-name"] == "=?base64?ZmlsZTovLy/DpA==?="
    assert wire.methods().count("tools/list") == 1


@pytest.mark.parametrize("has_headers", [True, False])
async def test_over_http_a_tool_with_a_wrong_annotation_is_left_out(has_headers: bool) -> None:
    wrong = {"properties": {"where": {"type": "object", "x-mcp-header": "Region"}}}
    tools = [REGION, {"name": "bad", "inputSchema": wrong}]
    client, _ = await talking(lambda m: [result(m, {"tools": tools})], has_headers=has_headers)
    found = await client.listing("tools")
    assert [tool["name"] for tool in found.items] == (["t"] if has_headers else ["t", "bad"])
    assert [reason.partition(":")[0] for reason in found.rejected] == ["tool bad"] * has_headers


async def test_a_header_mismatch_has_the_tools_listed_again_and_the_call_sent_once_more() -> None:
    stale = [{"name": "t", "inputSchema": {}}]

    def script(m: Message) -> list[Message]:
        if m["method"] == "tools/list":
            return [result(m, {"tools": [stale.pop() if stale else REGION]})]
        if "mcp-param-region" not in wire.headers[-1]:
            return [error(m, -32020, "header mismatch")]
        return [result(m, DONE)]

    client, wire = await talking(script, has_headers=True)
    assert await client.call_tool("t", {"where": "eu"}) == DONE
    assert wire.methods()[1:] == ["tools/list", "tools/call"] * 2


async def test_log_messages_are_asked_for_and_passed_on() -> None:
    received: list[Any] = []
    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "hi"}}
    client, wire = await talking(lambda m: [log, result(m, DONE)], log=received.append)
    await client.set_log_level("debug")
    await client.call_tool("t")
    assert wire.sent[-1]["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == "debug"
    assert received == [{"data": "hi"}]


@pytest.mark.parametrize("offers", ["logging", "tools"])
async def test_a_legacy_server_is_told_the_log_level_only_if_it_logs(offers: str) -> None:
    def script(m: Message) -> list[Message]:
        if m["method"] == "logging/setLevel":
            return [result(m, {})]
        capabilities: dict[str, Any] = {offers: {}}
        return legacy(m, **capabilities)

    wire = FakeWire(script)
    client = await connect(Fake([wire]), era="legacy")
    await client.set_log_level("error")
    assert ("logging/setLevel" in wire.methods()) is (offers == "logging")


async def test_only_what_can_be_answered_is_declared() -> None:
    async def never(_: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError

    assert ClientAnswers().capabilities == {}
    every = ClientAnswers(elicit=never, elicit_modes=("form", "url"), sample=never, roots=never)
    assert every.capabilities == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
    }


async def test_a_mode_that_was_not_declared_is_refused_as_bad_params() -> None:
    with pytest.raises(McpError, match="mode 'url'") as caught:
        await ClientAnswers(elicit=ada).answer("elicitation/create", {"mode": "url"})
    assert caught.value.code == -32602


async def test_an_answer_that_fails_is_the_clients_failure() -> None:
    async def fails(_: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("oh")

    with pytest.raises(McpError, match="failed to answer roots/list") as caught:
        await ClientAnswers(roots=fails).serve("roots/list", b"")
    assert caught.value.code == -32603


def our_server() -> Server:
    server = Server("ours", "1.0", instructions="Be kind.")

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def greet(context: Context) -> str:
        """Greet the person."""
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.elicit("Who are you?", schema)
        return f"Hello, {answer.content['name']}" if answer.accepted else answer.action

    @server.tool
    async def steps(context: Context) -> str:
        """Report progress, and log."""
        for step in (1, 2, 3):
            await context.progress(step, 3)
        await context.log("warning", "done")
        return "done"

    @server.tool
    async def wait(context: Context) -> str:
        """Never comes back."""
        await asyncio.Event().wait()
        return "never"

    return server


def local(server: Server) -> MemoryAddress:
    return MemoryAddress(lambda send: Connection(server.endpoint(), send))


@ERAS
async def test_our_own_server_in_memory(era: str) -> None:
    async def person(params: dict[str, Any]) -> dict[str, Any]:
        assert params["message"] == "Who are you?"
        return {"action": "accept", "content": {"name": "Ada"}}

    logged: list[Any] = []
    moved: list[float] = []
    address = local(our_server())
    client = await connect(
        address, era=era, answers=ClientAnswers(elicit=person), log=logged.append
    )
    async with client:
        assert client.modern is (era == "modern")
        assert client.server.info["name"] == "ours"
        assert client.server.instructions == "Be kind."
        await client.set_log_level("info")
        assert len(await client.list_tools()) == 4
        assert (await client.call_tool("add", {"a": 2}))["content"][0]["text"] == "3"
        assert (await client.call_tool("greet"))["content"][0]["text"] == "Hello, Ada"
        await client.call_tool("steps", progress=lambda p: moved.append(p["progress"]))
        assert moved == [1, 2, 3]
        assert [message["data"] for message in logged] == ["done"]
        with pytest.raises(TargetError, match="did not answer"):
            await client.call_tool("wait", timeout=0.02)


async def test_auto_finds_our_own_server_modern() -> None:
    async with await connect(local(our_server())) as client:
        assert client.modern
