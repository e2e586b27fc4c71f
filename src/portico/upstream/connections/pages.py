"""Fetches all pages of a list, within limits."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.core.model.errors import METHOD_NOT_FOUND, McpError, TargetError
from portico.core.model.methods import ListKind

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
