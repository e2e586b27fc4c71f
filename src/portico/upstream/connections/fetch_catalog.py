"""Fetches the lists of an upstream, byte for byte."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, field

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.header_params import header_params
from portico.core.model.errors import McpError, TargetError
from portico.core.model.methods import LIST_KINDS, TABLE, ListKind
from portico.core.model.offer import Listed, Offer
from portico.core.protocol.codec import encode
from portico.upstream.connections.handshake import Introduction
from portico.upstream.connections.pages import RequestPage, all_pages


class _Keys(Struct):
    name: str = ""
    uri: str = ""
    template: str = field(default="", name="uriTemplate")


class _Schema(Struct):
    schema: dict[str, Any] = field(default_factory=dict, name="inputSchema")


# Accept numbers that no float can hold.
_schema = msgspec.json.Decoder(_Schema, float_hook=float).decode
_keys = msgspec.json.Decoder(_Keys).decode
_FIELD = {"name": "name", "uri": "uri", "uriTemplate": "template"}


async def fetch_catalog(
    request_page: RequestPage,
    server: str,
    introduction: Introduction,
    *,
    now: float,
    before: Offer | None = None,
    has_headers: bool = False,
    max_items: int | None = None,
    report: Callable[[str], None] = lambda _: None,
    missed: Callable[[str], None] = lambda _: None,
) -> Offer:
    """Fetch all lists that the upstream declares; a list that fails stays as it was `before`, and
    `missed` receives the reason.

    `mirrors` leaves out tools with invalid header annotations (modern HTTP); `max_items` limits
    each list.
    """
    lists: dict[str, Listed] = {}
    for name, kind in LIST_KINDS.items():
        meaning = TABLE[kind.method, introduction.version]
        if meaning.capability not in introduction.capabilities:
            continue
        older = before.lists.get(name) if before is not None else None
        try:
            pages = await all_pages(request_page, server, kind, max_items)
        except (McpError, TargetError) as error:
            if isinstance(error, TargetError) and error.kind != "protocol":
                raise
            missed(f"{server} failed to answer {kind.method}: {error}")
            if older is not None:
                lists[name] = older
            continue
        known: dict[str, bytes] = {}
        for raw in pages.items:
            key = _key_of(kind, raw)
            if not key:
                report(f"{server} lists an entry without {kind.key}; it is left out")
            elif has_headers and name == "tools" and (why := _invalid_headers(raw)):
                report(f"tool {key} of {server} is left out: {why}")
            else:
                known.setdefault(key, raw)
        listed = Listed(
            items=tuple(known.values()),
            keys=tuple(known),
            more=encode(pages.more),
            page_size=pages.first if pages.count > 1 else 0,
            omitted=pages.omitted,
        )
        if listed.omitted and (older is None or older.omitted != listed.omitted):
            report(_too_many(server, name, listed))
        # Reuse an equal list, so that it is in memory once.
        lists[name] = older if older is not None and older == listed else listed
    return Offer(introduction.version, introduction.raw, lists, now)


def _too_many(server: str, kind: str, listed: Listed) -> str:
    kept = len(listed.keys)
    return (
        f"{server} lists more than {kept} {kind}: {listed.omitted} or more are left out; "
        f"to use them, raise max_tools of {server} in the config"
    )


def _key_of(kind: ListKind, raw: bytes) -> str:
    try:
        key: str = getattr(_keys(raw), _FIELD[kind.key])
    except (msgspec.DecodeError, RecursionError):
        return ""
    return key


def _invalid_headers(raw: bytes) -> str:
    try:
        header_params(_schema(raw).schema)
    except DefinitionError as error:
        return str(error)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"its schema cannot be read: {error}"
    return ""
