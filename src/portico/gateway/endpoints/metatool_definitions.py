"""The definitions of the meta-tools, which a model sees instead of all tools."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct, field

from portico.core.model.message import Request
from portico.core.protocol.codec import decoded, encode
from portico.library.tasks.mcp.task_tool_definitions import TASK_TOOL_NAMES, hints

SEARCH, DESCRIBE = "search_tools", "describe_tool"
EXECUTE, EXECUTE_READ = "execute_tool", "execute_read_tool"
REFRESH, STATUS = "refresh_tools", "gateway_status"
EXECUTES = (EXECUTE, EXECUTE_READ)
NAMES = (SEARCH, DESCRIBE, *EXECUTES, REFRESH, STATUS)
RESERVED = (*NAMES, *TASK_TOOL_NAMES)

OWN_QUERY = "portico/ownQuery"
"""A key in `_meta`: a command of Portico makes this call for its own use."""
MAX_LIMIT = 50
_META = {"anthropic/alwaysLoad": True}
"""Clients with a tool search of their own would hide the meta-tools without it."""
_DETAIL = {"enum": ["brief", "full"], "default": "brief"}


class _CallMeta(Struct):
    meta: dict[str, Raw] = field(default_factory=dict, name="_meta")


def is_own_query(request: Request) -> bool:
    """True if a command of Portico calls a meta-tool for its own use. `execute_tool` never counts:
    no call of a server may be hidden from the log."""
    if OWN_QUERY.encode() not in request.params or request.name in EXECUTES:
        return False
    call = decoded(request.params, _CallMeta) or _CallMeta()
    return bytes(call.meta.get(OWN_QUERY, b"")) == b"true"


def meta_tools(servers: str, tools: int, default_limit: int) -> dict[str, bytes]:
    """Return the definitions by name; `servers` is a summary, `tools` the number of tools."""
    found = (
        _search(servers, tools, default_limit),
        _tool(
            DESCRIBE,
            "Full definition of tools found by search_tools: schema, server, annotations.",
            {"name": _text(), "names": _texts("several at once")},
            hints(reads=True, repeats=True),
        ),
        _tool(
            EXECUTE,
            "Call a tool found by search_tools. Returns its result unchanged.",
            _EXECUTED,
            hints(destroys=True, reaches_out=True),
            executes=True,
        ),
        _tool(
            EXECUTE_READ,
            "The same, only for tools that are read-only.",
            {**_EXECUTED, "name": _text(), "arguments": {"type": "object"}},
            hints(reads=True, repeats=True, reaches_out=True),
            executes=True,
        ),
        _tool(
            REFRESH,
            "Reload the tool lists of the servers.",
            {"server": _text("only this one")},
            hints(repeats=True, reaches_out=True),  # it starts servers, and replaces their lists
        ),
        _tool(
            STATUS,
            "List the servers and the state of each.",
            {"server": _text("only this one"), "detail": _DETAIL},
            hints(reads=True, repeats=True),
        ),
    )
    return dict(zip(NAMES, map(encode, found), strict=True))


def _search(servers: str, tools: int, default_limit: int) -> dict[str, Any]:
    words = (
        f"Find the right one among {tools} tools. Servers: {servers}. "
        "Search whenever a task may need one of them; describe one need per query "
        "('send an email'), several needs as `queries`. Then use the tool in `call`."
    )
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": default_limit}
    properties = {
        "query": _text("one need, in plain words"),
        "queries": _texts("several needs at once"),
        "limit": limit,
        "server": _text("only this server"),
        "detail": _DETAIL,
    }
    return _tool(SEARCH, words, properties, hints(reads=True, repeats=True))


def _tool(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    annotations: Mapping[str, bool],
    *,
    executes: bool = False,
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    tool = {"name": name, "description": description, "inputSchema": schema}
    tool["annotations"] = annotations
    if executes:
        schema["required"] = ["name"]
        tool["execution"] = {"taskSupport": "optional"}
    return {**tool, "_meta": _META}


def _text(description: str = "") -> dict[str, Any]:
    return {"type": "string", "description": description} if description else {"type": "string"}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_EXECUTED = {
    "name": _text("as returned, e.g. server__tool"),
    "arguments": {"type": "object", "description": "the tool's own arguments"},
    "timeout_s": {"type": "number", "exclusiveMinimum": 0},
}
