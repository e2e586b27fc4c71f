"""The check behind `portico servers test`: one server started, and its lists fetched."""

import time
from typing import Any

from portico.config.read import read
from portico.config.schema import ComponentEntry, ServerEntry
from portico.model.errors import PorticoError

KINDS = ("tools", "resources", "templates", "prompts")


async def check_server(
    path: str, name: str, version: str, within_s: float | None = None
) -> dict[str, Any]:
    """Start a server of the config, or connect to it; return its offer, or its `error`."""
    started = time.perf_counter()
    try:
        # Each is read separately: a missing variable of one must not fail the others.
        server = _server_of(read(path, only={name}).entries[name])
        outcome = await _connect_and_list(server, version, within_s)
    except PorticoError as error:
        outcome = {"ok": False, "error": str(error), "kind": getattr(error, "kind", "")}
    return {"server": name, **outcome, "ms": round((time.perf_counter() - started) * 1000, 1)}


def _server_of(entry: ServerEntry | ComponentEntry) -> ServerEntry:
    """The server of an entry; a component is tested in its own process."""
    if isinstance(entry, ServerEntry):
        return entry
    from portico.components.own_process import as_server, checked

    return as_server(checked(entry))


async def _connect_and_list(
    server: ServerEntry, version: str, within_s: float | None
) -> dict[str, Any]:
    from portico.client.connect import connect
    from portico.upstream.configured_address import address, configured_limits
    from portico.upstream.handshake import HandshakeLimits

    limits = configured_limits(server)
    if within_s is not None:
        limits = HandshakeLimits(init_s=within_s, list_s=within_s, call_s=within_s)
    client = await connect(
        address(server),
        era=server.era,
        limits=limits,
        info={"name": "portico", "title": "Portico", "version": version},
    )
    async with client:
        lists = {kind: await client.listing(kind) for kind in KINDS}
        hidden = [t for t in lists["tools"].items if not server.tools.allows(t["name"])]
        return {
            "ok": True,
            "info": client.server.info,
            "protocolVersion": client.server.version.text,
            "era": "modern" if client.modern else "legacy",
            "transport": client.transport,
            **{kind: len(listing.items) for kind, listing in lists.items()},
            "hidden": len(hidden),
        }
