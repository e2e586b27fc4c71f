"""The chain: links, several servers as one, and several doors to one server."""

import json
from typing import Any

import pytest

from portico import (
    Answer,
    Context,
    Link,
    McpError,
    Only,
    RegistrationError,
    Request,
    Response,
    Server,
    Version,
    after,
)
from portico.core.model.types import Handler
from tests.support.messages import error, modern, result


def with_tools(name: str, *tools: str) -> Server:
    server = Server(name)
    for tool in tools:
        answer = f"{tool} of {name}"
        server.add_tool(
            {"name": tool, "inputSchema": {"type": "object"}},
            lambda arguments, context, answer=answer: answer,
        )
    return server


async def names(server: Server) -> list[str]:
    return [tool["name"] for tool in (await result(server, modern("tools/list")))["tools"]]


async def test_servers_compose_into_one_with_one_line() -> None:
    both = Server.compose("both", with_tools("x", "b", "a"), with_tools("y", "c"), version="2.0")
    assert await names(both) == ["b", "a", "c"]
    answer = await result(both, modern("tools/call", {"name": "c"}))
    assert answer["content"][0]["text"] == "c of y"
    identity = answer["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert identity == {"name": "both", "version": "2.0"}
    assert (await error(both, modern("tools/call", {"name": "d"})))["code"] == -32602


def test_a_clash_is_refused_with_both_owners_named() -> None:
    with pytest.raises(RegistrationError, match="tool 'a' is offered by both 'x' and 'y'"):
        Server.compose("both", with_tools("x", "a"), with_tools("y", "a"))


async def test_a_newcomer_at_run_time_is_hidden_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x, y = with_tools("x", "a"), with_tools("y", "b")
    both = Server.compose("both", x, y)
    y.add_tool({"name": "a", "inputSchema": {"type": "object"}}, lambda arguments: "newcomer")
    assert await names(both) == ["a", "b"]
    answer = await result(both, modern("tools/call", {"name": "a"}))
    assert answer["content"][0]["text"] == "a of x"
    assert "offered by both 'x' and 'y'" in caplog.text


async def test_a_change_in_a_part_is_a_change_of_the_whole() -> None:
    part = with_tools("x", "a")
    whole = Server.compose("whole", part)
    assert await names(whole) == ["a"]
    part.remove_tool("a")
    part.add_tool({"name": "z", "inputSchema": {"type": "object"}}, lambda arguments: "")
    assert await names(whole) == ["z"]


async def test_the_chain_is_frozen_once_it_serves() -> None:
    whole = Server.compose("whole", with_tools("x", "a"))
    await names(whole)
    with pytest.raises(RegistrationError, match="frozen"):
        whole.include(with_tools("y", "b"))


def recording(seen: list[str], name: str) -> Any:
    def link(next: Handler) -> Handler:
        async def pass_on(request: Request, context: Context) -> Response:
            seen.append(f"{name} {request.method}")
            return await next(request, context)

        return pass_on

    return link


def ask(method: str, **fields: Any) -> Request:
    return Request(method=method, id=b"1", version=Version.V2026_07_28, **fields)


async def test_links_see_every_request_the_first_one_first() -> None:
    seen: list[str] = []
    door = with_tools("x", "a").endpoint([recording(seen, "outer"), recording(seen, "inner")])
    for method in ("tools/list", "server/discover", "tools/call"):
        await door.handle(ask(method, name="a", params=b'{"name":"a"}'), Context())
    assert seen[:2] == ["outer tools/list", "inner tools/list"]
    assert seen[2:4] == ["outer server/discover", "inner server/discover"]
    assert len(seen) == 6


async def test_one_server_has_several_doors_each_behind_its_own_links() -> None:
    server = with_tools("x", "public_a", "private_b")
    public, private = server.endpoint([Only(tools=["public_*"])]), server.endpoint()

    async def seen(door: Any) -> list[str]:
        answer = (await door.handle(ask("tools/list"), Context())).decode()
        return [tool["name"] for tool in answer["result"]["tools"]]

    assert await seen(public) == ["public_a"]
    assert await seen(private) == ["public_a", "private_b"]
    call = ask("tools/call", name="private_b", params=b'{"name":"private_b"}')
    assert (await public.handle(call, Context())).code == -32602
    assert not (await private.handle(call, Context())).error


async def test_a_view_is_serialised_once_per_catalog() -> None:
    server = with_tools("x", "a", "b")
    door = server.endpoint([Only(tools=["a"])])
    first = (await door.handle(ask("tools/list"), Context())).result
    assert (await door.handle(ask("tools/list"), Context())).result is first
    server.remove_tool("a")
    assert (await door.handle(ask("tools/list"), Context())).code == -32601


async def test_a_link_that_fails_fails_only_its_request() -> None:
    def broken(next: Handler) -> Handler:
        async def fail(request: Request, context: Context) -> Response:
            raise RuntimeError("secret detail")

        return fail

    response = await with_tools("x", "a").endpoint([broken]).handle(ask("tools/list"), Context())
    assert response.code == -32603
    assert b"secret" not in response.encode()


def refusing(next: Handler) -> Handler:
    def handle(request: Request, context: Context) -> Answer:
        raise McpError("refused", code=-31000)

    return handle


def refusing_later(next: Handler) -> Handler:
    async def handle(request: Request, context: Context) -> Response:
        raise McpError("refused", code=-31000)

    return handle


@pytest.mark.parametrize("behind", [[], [refusing], [refusing_later]])
async def test_a_link_sees_the_refusals_behind_it_as_answers(behind: list[Link]) -> None:
    server = Server("x")
    seen: list[int] = []

    @server.tool
    async def a() -> None:
        """Refuse every call."""
        raise McpError("refused", code=-31000)

    def counting(next: Handler) -> Handler:
        def note(response: Response) -> Response:
            seen.append(response.code)
            return response

        return lambda request, context: after(next(request, context), note)

    call = ask("tools/call", name="a", params=b'{"name":"a"}')
    response = await server.endpoint([counting, *behind]).handle(call, Context())
    assert (response.id, response.code, seen) == (b"1", -31000, [-31000])
    call.id = b""
    assert (await server.endpoint([counting, *behind]).handle(call, Context())).is_nothing


async def test_nothing_hidden_can_be_had_by_a_side_door() -> None:
    server = Server("x")
    server.resource("secret://x", name="open-sounding")(lambda: "secret")
    server.resource("open://y", name="y")(lambda: "open")
    server.prompt(lambda word="": "hidden", name="hidden")
    server.completion("hidden", "word")(lambda value: ["leaked"])
    door = server.endpoint([Only(resources=["open*"], prompts=["shown"])])
    by_name = ask("resources/read", name="open-sounding", params=b'{"name":"open-sounding"}')
    assert (await door.handle(by_name, Context())).code == -32602
    shown = ask("resources/read", name="y", params=b'{"name":"y"}')
    assert not (await door.handle(shown, Context())).error
    reference = (
        b'{"ref":{"type":"ref/prompt","name":"hidden"},"argument":{"name":"word","value":""}}'
    )
    assert (await door.handle(ask("completion/complete", params=reference), Context())).error
    acknowledged = await first_heard(door, ["secret://x", "open://y"])
    assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": ["open://y"]}


async def first_heard(door: Any, uris: list[str]) -> dict[str, Any]:
    """What a modern listener is told first."""
    heard: list[dict[str, Any]] = []

    class Leaver:
        async def notify(self, message: bytes) -> None:
            heard.append(json.loads(message))

        async def ask(self, method: str, params: bytes) -> bytes:
            raise AssertionError(method)

        async def closed(self) -> None:
            return

    params = json.dumps({"notifications": {"resourceSubscriptions": uris}}).encode()
    await door.handle(ask("subscriptions/listen", params=params), Context(peer=Leaver()))
    return heard[0]


async def test_what_was_declared_in_advance_stays_declared_behind_a_view() -> None:
    door = Server("x", capabilities=["tools"]).endpoint([Only(tools=["*"])])
    assert not (await door.handle(ask("tools/list"), Context())).error


def test_a_part_takes_in_no_more_once_it_is_a_part() -> None:
    part = Server("part")
    Server.compose("whole", part)
    with pytest.raises(RegistrationError, match="'part' is already included in 'whole'"):
        part.include(Server("late"))


def test_only_servers_and_providers_can_be_included() -> None:
    with pytest.raises(RegistrationError, match="'weather' is neither a server nor a provider"):
        Server.compose("whole", "weather")  # type: ignore[arg-type]
