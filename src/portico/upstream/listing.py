"""Fetches whole lists of an upstream: all pages, within limits."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from portico.definitions.definition_error import DefinitionError
from portico.definitions.header_params import header_params
from portico.model.errors import METHOD_NOT_FOUND, McpError, TargetError
from portico.model.methods import LIST_KINDS, TABLE, ListKind
from portico.model.offer import HeaderParam
from portico.protocol.codec import decoded
from portico.upstream.rpc_error import one_line

if TYPE_CHECKING:
    from portico.upstream.client import Client

MAX_PAGES = 1000
MAX_ITEMS = 100_000
MAX_BYTES = 64 * 1024 * 1024

RequestPage = Callable[[str, Mapping[str, Any]], Awaitable[bytes]]
"""Sends a list request: takes the method and the params, returns the raw result."""


class Pages(Struct):
    """The raw items of all pages."""

    items: list[bytes]
    count: int = 0
    """The number of pages."""
    first: int = 0
    """The number of items on the first page."""
    more: dict[str, Raw] = {}
    """The other fields of the first page."""
    size: int = 0
    """The bytes of all items."""
    omitted: int = 0
    """The least number of items beyond the limit."""


class Listing(Struct):
    """All items of one kind."""

    items: list[dict[str, Any]]
    size: int = 0
    """The bytes of the items as they came."""
    pages: int = 0
    rejected: list[str] = []
    """Why items were left out."""
    header_params: dict[str, tuple[HeaderParam, ...]] = {}
    """By tool, the arguments to repeat in HTTP headers."""


async def all_pages(
    request_page: RequestPage, server: str, kind: ListKind, max_items: int | None = None
) -> Pages:
    """Fetch all pages of a list, or its first items if there are too many; raises TargetError if
    they cannot be read or do not end."""
    pages = Pages([])
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        params = {} if cursor is None else {"cursor": cursor}
        try:
            raw = await request_page(kind.method, params)
        except McpError as error:
            if error.code == METHOD_NOT_FOUND and not pages.count:
                return pages  # declared, but missing: templates of many servers
            raise
        cursor = _add_page(server, kind, raw, pages)
        if max_items is not None and (
            len(pages.items) > max_items or (cursor and len(pages.items) == max_items)
        ):
            pages.omitted = max(1, len(pages.items) - max_items)
            del pages.items[max_items:]
            return pages
        why = _size_problem(pages) or _paging_problem(cursor, seen, pages)
        if why:
            raise TargetError(f"{server} {why} in {kind.method}", kind="protocol", server=server)
        if cursor is None:
            return pages
        seen.add(cursor)


async def list_all(client: "Client", kind: str) -> Listing:
    """Fetch all items of a kind; none if the server does not support the kind."""
    wanted = LIST_KINDS[kind]
    meaning = TABLE[wanted.method, client.server.version]
    listing = Listing([])
    if meaning.capability not in client.server.capabilities:
        return listing

    async def request_page(method: str, params: Mapping[str, Any]) -> bytes:
        return await client.request_once(method, params, timeout=client.limits.list_s)

    try:
        pages = await all_pages(request_page, client.name, wanted)
    except McpError as error:
        why = f"failed to answer {wanted.method}: {one_line(error)} (code {error.code})"
        raise TargetError(f"{client.name} {why}", kind="protocol", server=client.name) from None
    listing.pages, listing.size = pages.count, pages.size
    for raw in pages.items:
        item = decoded(raw, dict[str, Any])
        if item is None:
            listing.rejected.append(f"an entry of {wanted.method} that is not an object")
        else:
            _add_item(client, wanted, item, listing)
    return listing


def _add_page(server: str, kind: ListKind, raw: bytes, pages: Pages) -> str | None:
    """Add a page, and return the cursor of the next one."""
    try:
        page = msgspec.json.decode(raw, type=dict[str, Raw])
        items = msgspec.json.decode(page.pop(kind.field, Raw(b"null")), type=list[Raw])
        cursor = msgspec.json.decode(page.pop("nextCursor", Raw(b"null")), type=str | None)
    except (msgspec.DecodeError, RecursionError) as error:
        why = f"sent a page of {kind.method} that cannot be read: {error}"
        raise TargetError(f"{server} {why}", kind="protocol", server=server) from None
    if not pages.count:
        pages.first, pages.more = len(items), page
    pages.count += 1
    for item in items:
        pages.items.append(bytes(item))
        pages.size += len(pages.items[-1])
    return cursor


def _add_item(client: "Client", kind: ListKind, item: dict[str, Any], listing: Listing) -> None:
    key = item.get(kind.key)
    if not isinstance(key, str):
        listing.rejected.append(f"an entry of {kind.method} without {kind.key}")
        return
    if kind.field == "tools" and client.has_headers:
        # Clients over HTTP leave out a tool whose annotations are invalid (schema extension).
        try:
            listing.header_params[key] = header_params(item.get("inputSchema") or {})
        except DefinitionError as error:
            listing.rejected.append(f"tool {key}: {error}")
            return
    listing.items.append(item)


def _paging_problem(cursor: str | None, seen: set[str], pages: Pages) -> str:
    if cursor is None:
        return ""
    if cursor in seen:
        return "repeats a cursor"
    return f"has more than {MAX_PAGES} pages" if pages.count >= MAX_PAGES else ""


def _size_problem(pages: Pages) -> str:
    if len(pages.items) > MAX_ITEMS:
        return f"has more than {MAX_ITEMS} entries"
    if pages.size > MAX_BYTES:
        return f"has more than {MAX_BYTES} bytes"
    return ""
