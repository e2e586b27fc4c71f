"""The session of a request: found from its client, opaque to components, never forged."""

import json
from pathlib import Path
from typing import Any

import pytest

from portico import Context, McpError, Request, Response, Server, SessionError, ToolError, Version
from portico.core.model.context import ANYONE
from portico.core.model.session import Session
from portico.core.state.client_sessions import FOLDER_VARIABLE, SESSION_KEY, ClientSessions


def call(params: str) -> Request:
    return Request(
        method="tools/call", id=b"1", name="x", params=params.encode(), version=Version.V2026_07_28
    )


def session(id: str = "") -> Session:
    return Session(lambda _: None, id=id)


def sessions(folder: Path) -> ClientSessions:
    return ClientSessions(lambda: str(folder))


def test_a_session_has_an_id_for_each_component(tmp_path: Path) -> None:
    one, two, known = (
        Context(session=session("a")),
        Context(session=session("b")),
        sessions(tmp_path),
    )
    ids = [known.id_of(context, name) for context in (one, two) for name in ("calc", "notes")]
    assert len(set(ids)) == 4
    assert all(len(id) == 40 for id in ids)
    assert known.id_of(one, "calc") == ids[0]
    assert sessions(tmp_path).id_of(Context(session=session("a")), "calc") == ids[0]
    assert sessions(tmp_path / "other").id_of(Context(session=session("a")), "calc") != ids[0]


def test_connections_without_an_id_are_different_sessions(tmp_path: Path) -> None:
    known = sessions(tmp_path)
    assert known.id_of(Context(session=session()), "calc") != known.id_of(
        Context(session=session()), "calc"
    )


def test_a_request_without_a_session_has_that_of_its_principal(tmp_path: Path) -> None:
    known = sessions(tmp_path)
    ana, bo = Context(principal="ana"), Context(principal="bo")
    assert known.id_of(ana, "calc") == known.id_of(Context(principal="ana"), "calc")
    assert known.id_of(ana, "calc") != known.id_of(bo, "calc")
    assert known.id_of(Context(principal=ANYONE), "calc") == ""
    with pytest.raises(SessionError, match="this request has no session"):
        known.of(None, Context(principal=ANYONE), "calc")


@pytest.mark.parametrize(
    "forged",
    [
        '{"_meta":{"portico/session":"mine"},"name":"x"}',
        '{"_meta":{"portico\\u002fsession":"mine"},"name":"x"}',
        '{"_meta":{},"_meta":{"portico/session":"mine","a":1},"name":"x"}',
        '{"\\u005fmeta":{"portico/session":"mine"},"name":"x"}',
        '{"_meta":{"portico/session":"mine","portico/session":"mine"},"name":"x"}',
        '{"name":"x","_meta":[]}',
        '{"name":"x"}',
    ],
)
@pytest.mark.parametrize("principal", ["ana", ANYONE])
def test_what_a_client_sends_as_an_id_is_removed(
    tmp_path: Path, forged: str, principal: str
) -> None:
    known, context = sessions(tmp_path), Context(principal=principal)
    stamped = json.loads(known.stamped(call(forged), context, "calc").params)
    meta = stamped.get("_meta", {})
    assert meta.get(SESSION_KEY, "") == known.id_of(context, "calc")
    assert stamped["name"] == "x"


async def test_a_component_takes_the_id_of_its_gateway_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    child, gateway = ClientSessions(), sessions(tmp_path)
    child.keep_in(lambda: "elsewhere")
    ana = gateway.stamped(call('{"name":"x"}'), Context(principal="ana"), "calc")
    bo = gateway.stamped(call('{"name":"x"}'), Context(principal="bo"), "calc")
    await child.of(ana, Context(), "calc").set("name", "Ana")
    assert await child.of(ana, Context(), "calc").get("name") == "Ana"
    assert await child.of(bo, Context(), "calc").get("name") is None
    for bad in (
        '{"name":"x"}',
        '{"_meta":{"portico/session":5}}',
        '{"_meta":{"portico/session":""}}',
    ):
        with pytest.raises(SessionError):
            child.of(call(bad), Context(), "calc")


async def test_a_plain_process_trusts_no_id_of_its_clients(tmp_path: Path) -> None:
    known = sessions(tmp_path)
    await known.of(None, Context(principal="ana"), "calc").set("name", "Ana")
    id = known.id_of(Context(principal="ana"), "calc")
    forged = call(json.dumps({"_meta": {SESSION_KEY: id}}))
    assert await known.of(forged, Context(principal="bo"), "calc").get("name") is None


# In the handlers of a server.

server = Server("shop")


@server.tool
async def put(item: str, context: Context) -> list[str]:
    """Put something into the basket of this session."""
    basket: list[str] = await context.store.get("basket", [])
    await context.store.set("basket", [*basket, item])
    kept: list[str] = await context.store.get("basket", type=list[str])
    return kept


count_tool = Server("plain")


@count_tool.tool
def visits(context: Context) -> str:
    """Use every operation, in a plain function."""
    store: Any = context.store
    store.set("a", 1)
    store.set("b", b"2", expires_in=60)
    said = [
        store.increment("a"),
        store.get("b"),
        store.keys(),
        store.delete("a"),
        store.get("a", 7),
    ]
    store.clear()
    return f"{said} {store.keys()}"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_handler_keeps_values_for_its_session(era: Any) -> None:
    async with server.test_client(era=era) as ana, server.test_client(era=era) as bo:
        await ana.call_tool("put", {"item": "tea"})
        assert (await ana.call_tool("put", {"item": "milk"})).structured == {
            "result": ["tea", "milk"]
        }
        assert (await bo.call_tool("put", {"item": "rum"})).structured == {"result": ["rum"]}


async def test_a_plain_function_keeps_values_too() -> None:
    async with count_tool.test_client() as client:
        assert (await client.call_tool("visits", {})).text == "[2, b'2', ['a', 'b'], True, 7] []"


async def test_values_of_two_servers_are_apart() -> None:
    one, two = Server("one"), Server("two")

    async def first(context: Context) -> int:
        return await context.store.increment("calls")

    async def second(context: Context) -> int:
        return await context.store.increment("calls")

    one.tool(first)
    two.tool(second)
    async with Server.compose("both", one, two).test_client() as client:
        found = [(await client.call_tool(name, {})).text for name in ("first", "first", "second")]
    assert found == ["1", "2", "1"]


async def test_without_a_session_a_tool_fails_with_the_reason() -> None:
    params = {"name": "put", "arguments": {"item": "tea"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = (await server.handle(request, Context(principal=ANYONE))).decode()
    assert answer["result"]["isError"]
    assert "this request has no session" in answer["result"]["content"][0]["text"]


async def test_a_server_keeps_its_own_folder(tmp_path: Path) -> None:
    async def calls(context: Context) -> int:
        return await context.store.increment("calls")

    for expected in (1, 2):
        again = Server("again", sessions=tmp_path)
        again.tool(calls)
        params = {"name": "calls", "arguments": {}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = (await again.handle(request, Context(principal="ana"))).decode()
        assert answer["result"]["content"][0]["text"] == str(expected)


async def test_a_link_keeps_values_apart_from_those_of_tools() -> None:
    seen: list[int] = []

    def limited(next: Any) -> Any:
        async def handle(request: Request, context: Context) -> Response:
            if request.method == "tools/call":
                seen.append(await context.store.increment("basket"))
                if seen[-1] > 2:
                    raise McpError("enough", code=-31000)
            answer: Response = await next(request, context)
            return answer

        return handle

    async with server.test_client(links=[limited]) as client:
        assert (await client.call_tool("put", {"item": "tea"})).structured == {"result": ["tea"]}
        await client.call_tool("put", {"item": "milk"})
        with pytest.raises((McpError, ToolError), match="enough"):
            await client.call_tool("put", {"item": "rum"})
    assert seen == [1, 2, 3]


async def test_a_link_without_a_session_fails_with_the_reason() -> None:
    def counting(next: Any) -> Any:
        async def handle(request: Request, context: Context) -> Response:
            await context.store.increment("calls")
            answer: Response = await next(request, context)
            return answer

        return handle

    params = b'{"name":"put","arguments":{"item":"tea"}}'
    request = Request(method="tools/call", id=b"1", name="put", params=params)
    answer = await server.endpoint([counting]).handle(request, Context(principal=ANYONE))
    assert "counting: this request has no session" in answer.decode()["error"]["message"]


async def test_after_the_call_the_store_is_closed() -> None:
    kept: list[Context] = []
    late = Server("late")

    async def leak(context: Context) -> str:
        kept.append(context)
        return "done"

    late.tool(leak)
    async with late.test_client() as client:
        await client.call_tool("leak", {})
    with pytest.raises(RuntimeError, match=r"context\.store is for a handler"):
        _ = kept[0].store


def counting(name: str, tool: str) -> Server:
    made = Server(name)

    async def count(context: Context) -> int:
        return await context.store.increment("calls")

    made.tool(count, name=tool)
    return made


async def test_values_of_two_servers_of_one_name_are_apart() -> None:
    parts = [counting("same", tool) for tool in ("first", "second", "third")]
    outer = Server.compose("outer", Server.compose("inner", *parts[:2]), parts[2])
    async with outer.test_client() as client:
        tools = ("first", "first", "second", "third")
        found = [(await client.call_tool(name, {})).text for name in tools]
    assert found == ["1", "2", "1", "1"]


async def test_values_of_two_servers_of_one_name_are_apart_behind_prefixes() -> None:
    outer = Server("outer")
    for prefix in ("a", "b"):
        outer.include(counting("same", "count"), prefix=prefix)
    async with outer.test_client() as client:
        tools = ("a__count", "a__count", "b__count")
        found = [(await client.call_tool(name, {})).text for name in tools]
    assert found == ["1", "2", "1"]
