"""`handle`: pure, one message in, one answer out."""

import gc
import json

import pytest

from portico import Context, Server, Version
from portico.core.model.session import Session
from tests.support.messages import (
    LEGACY,
    at,
    error,
    initialize,
    modern,
    modern_meta,
    request,
    result,
)


@pytest.fixture
def server() -> Server:
    server = Server("weather", "1.2.3", title="Weather", instructions="Ask me.", page_size=2)
    for name in ("a", "b", "c"):
        server.add_tool({"name": name, "inputSchema": {"type": "object"}}, lambda arguments: "")
    return server


@pytest.mark.parametrize("version", LEGACY)
async def test_initialize_agrees_on_the_version_asked_for(server: Server, version: str) -> None:
    answer = await result(server, initialize(version))
    assert answer["protocolVersion"] == version
    assert answer["serverInfo"] == {"name": "weather", "version": "1.2.3", "title": "Weather"}
    assert answer["instructions"] == "Ask me."
    assert answer["capabilities"]["tools"] == {"listChanged": True}


@pytest.mark.parametrize("version", ["2023-01-01", "2026-07-28", "nonsense"])
async def test_initialize_with_another_version_is_answered_with_ours(
    server: Server, version: str
) -> None:
    assert (await result(server, initialize(version)))["protocolVersion"] == "2025-11-25"


async def test_discover_names_versions_capabilities_and_the_server(server: Server) -> None:
    answer = await result(server, modern("server/discover"))
    assert answer["supportedVersions"] == ["2026-07-28"]
    assert answer["capabilities"]["tools"] == {"listChanged": True}
    assert answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "weather"
    assert answer["resultType"] == "complete"


async def test_a_message_may_be_bytes_text_or_an_object(server: Server) -> None:
    message = request("ping")
    for form in (message, json.dumps(message), json.dumps(message).encode()):
        assert (await server.handle(form)).decode() == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_ids_come_back_as_they_were_sent(server: Server) -> None:
    for id in ("a", "", "ü", 0, -5, 2**70):
        assert (await server.handle(request("ping", id=id))).decode()["id"] == id
    assert (
        b'"\\u0061"'
        in (await server.handle(b'{"jsonrpc":"2.0","id":"\\u0061","method":"ping"}')).encode()
    )


async def test_notifications_are_answered_with_nothing(server: Server) -> None:
    for method in ("notifications/initialized", "notifications/nonsense", "tools/call", "ping"):
        response = await server.handle({"jsonrpc": "2.0", "method": method})
        assert response.is_nothing


async def test_lists_come_in_pages_and_an_unknown_cursor_is_invalid(server: Server) -> None:
    first = await result(server, modern("tools/list"))
    assert [tool["name"] for tool in first["tools"]] == ["a", "b"]
    rest = await result(server, modern("tools/list", {"cursor": first["nextCursor"]}))
    assert [tool["name"] for tool in rest["tools"]] == ["c"]
    assert "nextCursor" not in rest
    assert (await error(server, modern("tools/list", {"cursor": "x"})))["code"] == -32602


async def test_what_is_not_offered_does_not_exist(server: Server) -> None:
    for method in ("prompts/list", "resources/list", "resources/templates/list"):
        assert (await error(server, modern(method)))["code"] == -32601
        assert (await error(server, request(method)))["code"] == -32601
    assert "prompts" not in (await result(server, modern("server/discover")))["capabilities"]


async def test_what_could_be_offered_later_can_be_declared_at_once() -> None:
    server = Server("t", capabilities=["tools", "prompts"])
    assert (await result(server, modern("tools/list")))["tools"] == []
    assert (await result(server, modern("prompts/list")))["prompts"] == []


@pytest.mark.parametrize(
    "method", ["ping", "initialize", "logging/setLevel", "resources/subscribe"]
)
async def test_methods_of_the_other_era_do_not_exist(server: Server, method: str) -> None:
    assert (await error(server, modern(method)))["code"] == -32601
    assert (await error(server, modern("nonsense/method")))["code"] == -32601


async def test_session_state_is_refused_where_there_is_no_session(server: Server) -> None:
    refused = await error(server, request("logging/setLevel", {"level": "info"}))
    assert refused["code"] == -32600
    assert "session" in refused["message"]


async def test_a_session_is_initialised_once_and_serves_its_version(server: Server) -> None:
    context = Context(session=Session(lambda message: None))
    assert (await error(server, request("tools/list"), context))["code"] == -32600
    await result(server, initialize("2025-06-18"), context)
    assert context.session is not None
    assert context.session.version is Version.V2025_06_18
    assert context.session.client_info["name"] == "test"
    assert (await error(server, initialize(), context))["code"] == -32600
    assert (await result(server, request("tools/list"), context))["tools"]


@pytest.mark.parametrize(
    "params", [{}, {"protocolVersion": 5}, {"protocolVersion": "2025-06-18", "capabilities": []}]
)
async def test_a_malformed_handshake_is_invalid_params(
    server: Server, params: dict[str, object]
) -> None:
    assert (await error(server, request("initialize", params)))["code"] == -32602


async def test_log_levels_are_set_and_checked(server: Server) -> None:
    context = Context(session=Session(lambda message: None))
    await result(server, initialize(), context)
    await result(server, request("logging/setLevel", {"level": "error"}), context)
    assert context.session is not None
    assert context.session.log_level == "error"
    for level in ("loud", 5):
        refused = await error(server, request("logging/setLevel", {"level": level}), context)
        assert refused["code"] == -32602


async def test_headers_are_held_against_the_body_where_an_embedder_gives_them() -> None:
    server = Server("t")
    schema = {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "Region"}}}
    server.add_tool({"name": "go", "inputSchema": schema}, lambda arguments: "went")
    message = modern("tools/call", {"name": "go", "arguments": {"r": "eu"}})
    headers = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "go",
        "mcp-param-region": "eu",
    }
    await result(server, message, Context(headers=headers))
    for wrong in ({**headers, "mcp-param-region": "us"}, {**headers, "mcp-name": "stop"}):
        assert (await error(server, message, Context(headers=wrong)))["code"] == -32020
    missing = {key: value for key, value in headers.items() if key != "mcp-param-region"}
    assert (await error(server, message, Context(headers=missing)))["code"] == -32020


async def test_a_batch_is_a_transports_business(server: Server) -> None:
    batch = json.dumps([request("ping")])
    assert (await server.handle(batch, at("2025-03-26"))).code == -32600


async def test_bad_metadata_is_invalid_params(server: Server) -> None:
    for key, value in (("logLevel", "loud"), ("clientInfo", 5), ("clientCapabilities", [])):
        meta = {**modern_meta(), f"io.modelcontextprotocol/{key}": value}
        message = request("tools/list", {"_meta": meta})
        assert (await error(server, message))["code"] == -32602


async def test_headers_may_be_spelled_as_they_came() -> None:
    server = Server("t", capabilities=["tools"])
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", "Host": "a.test"}
    assert (await result(server, modern("tools/list"), Context(headers=headers)))["tools"] == []


async def test_a_version_may_be_given_as_text_but_must_be_one() -> None:
    server = Server("t", capabilities=["completions"])
    early = await result(server, initialize("2024-11-05"), Context(version="2024-11-05"))
    assert early["protocolVersion"] == "2024-11-05"
    assert Context(version="2025-06-18").version is Version.V2025_06_18
    with pytest.raises(
        ValueError, match="'2025-06-19' is not a protocol version; use one of 2024-11-05"
    ):
        Context(version="2025-06-19")


async def test_a_call_is_freed_as_soon_as_it_is_answered() -> None:
    server = Server("t")

    @server.tool
    async def it(*, context: Context) -> int:
        return 1

    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "it"}}
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(thing, Context) for thing in gc.get_objects())
        await server.handle(call)
        after = sum(isinstance(thing, Context) for thing in gc.get_objects())
    finally:
        gc.enable()
    assert after == before


async def test_initialize_is_logged_for_developers(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("x")
    with caplog.at_level("DEBUG", "portico"):
        async with server.test_client(era="legacy"):
            pass
    (line,) = (one.getMessage() for one in caplog.records if "initialize" in one.getMessage())
    assert line == "initialize: test 0, protocol 2025-11-25"
