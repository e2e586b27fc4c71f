"""Messages as tests write them, and what comes back as plain objects."""

from typing import Any

from portico import Context, Server

PREFIX = "io.modelcontextprotocol/"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"


def modern_meta(capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The metadata of a modern request."""
    return {
        PREFIX + "protocolVersion": MODERN,
        PREFIX + "clientCapabilities": capabilities or {},
        **{PREFIX + key: value for key, value in more.items()},
    }


def request(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    """A request as it was in the legacy era."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def modern(
    method: str,
    params: dict[str, Any] | None = None,
    capabilities: dict[str, Any] | None = None,
    id: Any = 1,
) -> dict[str, Any]:
    """A modern request."""
    return request(method, {**(params or {}), "_meta": modern_meta(capabilities)}, id)


def initialize(
    version: str = "2025-11-25", capabilities: dict[str, Any] | None = None, id: Any = 0
) -> dict[str, Any]:
    """A legacy client's first request."""
    params = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    return request("initialize", params, id)


async def result(
    server: Server, message: dict[str, Any], context: Context | None = None
) -> dict[str, Any]:
    """The result of a request that must succeed."""
    answer = (await server.handle(message, context)).decode()
    assert "result" in answer, answer
    found: dict[str, Any] = answer["result"]
    return found


async def error(
    server: Server, message: dict[str, Any], context: Context | None = None
) -> dict[str, Any]:
    """The error of a request that must fail."""
    answer = (await server.handle(message, context)).decode()
    assert "error" in answer, answer
    found: dict[str, Any] = answer["error"]
    return found


async def call(
    server: Server, name: str, arguments: dict[str, Any] | None = None, version: str = MODERN
) -> dict[str, Any]:
    """The result of a tool call in a version."""
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        params["arguments"] = arguments
    if version == MODERN:
        return await result(server, modern("tools/call", params))
    return await result(server, request("tools/call", params), at(version))


def text_of(answer: dict[str, Any]) -> str:
    """The text of a tool's result, which must be one block."""
    (block,) = answer["content"]
    found: str = block["text"]
    return found


def at(version: str, **more: Any) -> Context:
    """A context without a session that assumes a legacy version."""
    from portico.core.model.version import BY_TEXT

    return Context(version=BY_TEXT[version], **more)
