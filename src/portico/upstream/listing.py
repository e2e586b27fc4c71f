"""Whole lists of an upstream: all pages, within bounds."""

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from portico.definitions.errors import DefinitionError
from portico.definitions.headers import header_params
from portico.model.errors import METHOD_NOT_FOUND, McpError, TargetError
from portico.model.offer import HeaderParam
from portico.protocol.methods import TABLE

if TYPE_CHECKING:
    from portico.upstream.client import Client

MAX_PAGES = 1000
MAX_ITEMS = 100_000
MAX_BYTES = 64 * 1024 * 1024


class _Kind(Struct, frozen=True):
    method: str
    field: str
    key: str


_KINDS = {
    "tools": _Kind("tools/list", "tools", "name"),
    "resources": _Kind("resources/list", "resources", "uri"),
    "templates": _Kind("resources/templates/list", "resourceTemplates", "uriTemplate"),
    "prompts": _Kind("prompts/list", "prompts", "name"),
}


class Listing(Struct):
    """All items of one kind."""

    items: list[dict[str, Any]]
    size: int = 0
    """The bytes of the items as they came."""
    pages: int = 0
    rejected: list[str] = []
    """Why items were left out."""
    header_params: dict[str, tuple[HeaderParam, ...]] = {}
    """By tool, the arguments to mirror into HTTP headers."""


async def list_all(client: "Client", kind: str) -> Listing:
    """All items of a kind; none if the server does not offer the kind."""
    wanted = _KINDS[kind]
    meaning = TABLE[wanted.method, client.server.version]
    listing = Listing([])
    if meaning.capability not in client.server.capabilities:
        return listing
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        params = {} if cursor is None else {"cursor": cursor}
        try:
            raw = await client.ask(wanted.method, params, timeout=client.limits.list_s)
        except McpError as error:
            if error.code == METHOD_NOT_FOUND and not listing.pages:
                return listing  # declared, but not there: templates of many servers
            raise
        cursor = _take(client, wanted, raw, listing)
        if cursor is None:
            return listing
        why = _endless(cursor, seen, listing)
        if why:
            raise TargetError(
                f"{client.name} {why} in {wanted.method}", kind="protocol", server=client.name
            )
        seen.add(cursor)


def _take(client: "Client", kind: _Kind, raw: bytes, listing: Listing) -> str | None:
    """Add a page; the cursor of the next one."""
    try:
        page = msgspec.json.decode(raw, type=dict[str, Raw])
        items = msgspec.json.decode(page.get(kind.field, Raw(b"null")), type=list[Raw])
        cursor = msgspec.json.decode(page.get("nextCursor", Raw(b"null")), type=str | None)
        listing.pages += 1
        for item in items:
            _add(client, kind, msgspec.json.decode(item, type=dict[str, Any]), listing)
            listing.size += len(bytes(item))
    except (msgspec.DecodeError, RecursionError) as error:
        why = f"sent a page of {kind.method} that cannot be read: {error}"
        raise TargetError(f"{client.name} {why}", kind="protocol", server=client.name) from None
    return cursor


def _add(client: "Client", kind: _Kind, item: dict[str, Any], listing: Listing) -> None:
    key = item.get(kind.key)
    if not isinstance(key, str):
        listing.rejected.append(f"an entry of {kind.method} without {kind.key}")
        return
    if kind.field == "tools" and client.mirrors:
        # Clients over HTTP leave out a tool whose annotations are invalid (schema extension).
        try:
            listing.header_params[key] = header_params(item.get("inputSchema") or {})
        except DefinitionError as error:
            listing.rejected.append(f"tool {key}: {error}")
            return
    listing.items.append(item)


def _endless(cursor: str, seen: set[str], listing: Listing) -> str:
    if cursor in seen:
        return "repeats a cursor"
    if listing.pages >= MAX_PAGES:
        return f"has more than {MAX_PAGES} pages"
    if len(listing.items) > MAX_ITEMS:
        return f"has more than {MAX_ITEMS} entries"
    if listing.size > MAX_BYTES:
        return f"has more than {MAX_BYTES} bytes"
    return ""
