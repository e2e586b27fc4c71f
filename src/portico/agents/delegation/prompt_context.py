"""The context of a delegated prompt: text, JSON, or resources that are read through Portico."""

from collections.abc import Mapping
from typing import Any

import msgspec

from portico.agents.delegation.delegate_definitions import MAX_PROMPT
from portico.core.model.context import Context
from portico.core.model.errors import McpError, ToolError
from portico.core.model.message import Request
from portico.core.protocol.codec import encode

_MAX_LINKS = 20
Block = Mapping[str, Any]


async def context_blocks(given: Any, context: Context, *, reads: bool = True) -> tuple[Block, ...]:
    """Return the content blocks of a context; raises ToolError. Unless it `reads`, links are
    refused: the client has no access to resources."""
    if given is None or given == "":
        return ()
    if isinstance(given, str):
        return (_text(given),)
    items = given if isinstance(given, list) else [given]
    count = sum(map(_is_link, items))
    if not count:
        return (_text(encode(given).decode()),)
    if not reads:
        raise ToolError("context: this agent may not read resources; pass their content as text")
    if count > _MAX_LINKS:
        raise ToolError(f"context: at most {_MAX_LINKS} resource links at once")
    blocks: list[Block] = []
    for item in items:
        if _is_link(item):
            blocks += await _read(str(item["uri"]), context)
        else:
            blocks.append(_text(item if isinstance(item, str) else encode(item).decode()))
    return tuple(blocks)


def check_size(prompt: str, blocks: tuple[Block, ...]) -> None:
    """Raise ToolError for a prompt that is too long."""
    size = len(prompt) + sum(len(encode(block)) for block in blocks)
    if size > MAX_PROMPT:
        what = f"the prompt and its context have {size} characters"
        raise ToolError(f"{what}; the limit is {MAX_PROMPT}: put the rest into files in its folder")


def _is_link(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "resource_link" and "uri" in item


async def _read(uri: str, context: Context) -> list[Block]:
    downstream, request = context.downstream, context.request
    if downstream is None or request is None:
        raise ToolError(f"context: cannot read {uri[:200]!r}: no other server is connected here")
    asked = Request(
        method="resources/read",
        id=b"0",
        params=encode({"uri": uri}),
        uri=uri,
        version=request.version,
        meta=request.meta,
        is_derived=True,
    )
    try:
        response = await downstream(asked, context.derived())
    except McpError as error:
        raise ToolError(f"context: cannot read {uri[:200]!r}: {error.message}") from None
    if response.error:
        why = msgspec.json.decode(response.error).get("message", "")
        raise ToolError(f"context: cannot read {uri[:200]!r}: {why}")
    found = msgspec.json.decode(response.result).get("contents") or []
    return [{"type": "resource", "resource": one} for one in found if isinstance(one, dict)]


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
