"""Lists all items of a server, decoded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.header_params import header_params
from portico.core.model.errors import McpError, TargetError
from portico.core.model.methods import LIST_KINDS, TABLE, ListKind
from portico.core.model.offer import HeaderParam
from portico.core.protocol.codec import decoded
from portico.upstream.connections.pages import all_pages
from portico.upstream.rpc.rpc_error import one_line

if TYPE_CHECKING:
    from portico.edge.client.client import Client


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
