"""The check behind `portico servers test`: one server started, and its lists fetched."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from portico.core.config.read import read
from portico.core.config.schema import ComponentEntry, Config, ServerEntry
from portico.core.model.errors import McpError, PorticoError
from portico.core.model.methods import LIST_KINDS
from portico.core.protocol.codec import NO_RAW, decoded
from portico.core.protocol.eras import SERVER_INFO_KEY, members

if TYPE_CHECKING:
    from portico.core.catalog.catalog import Catalog

KINDS = tuple(LIST_KINDS)
_MAX_CONCURRENT = 4


async def check_each(
    path: str,
    names: Iterable[str],
    version: str,
    within_s: float | None,
    *,
    keeps: bool = False,
    tell: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Check these servers, a few at a time; return all outcomes, and tell each at once."""
    limiter = asyncio.Semaphore(_MAX_CONCURRENT)

    async def check(name: str) -> dict[str, Any]:
        async with limiter:
            outcome = await check_server(path, name, version, within_s, keeps=keeps)
        tell(outcome)
        return outcome

    # An unexpected failure of one check must not leave the other servers running.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(check(name)) for name in names]
    return [task.result() for task in tasks]


async def check_server(
    path: str, name: str, version: str, within_s: float | None = None, *, keeps: bool = False
) -> dict[str, Any]:
    """Start a server of the config, or connect to it; return its offer, or its `error`.

    With `keeps`, the catalog is kept where a gateway reads it.
    """
    started = time.perf_counter()
    try:
        # Each is read separately: a missing variable of one must not fail the others.
        config = read(path, only={name})
        server = _server_of(config.entries[name])
        outcome = await _listed(server, config, version, within_s, keeps=keeps)
    except PorticoError as error:
        outcome = {"ok": False, "error": str(error), "kind": getattr(error, "kind", "")}
    return {"server": name, **outcome, "ms": round((time.perf_counter() - started) * 1000, 1)}


def _server_of(entry: ServerEntry | ComponentEntry) -> ServerEntry:
    """The server of an entry; a component is tested in its own process."""
    if isinstance(entry, ServerEntry):
        return entry
    from portico.library.components.own_process import as_server, checked

    return as_server(checked(entry))


async def _listed(
    server: ServerEntry, config: Config, version: str, within_s: float | None, *, keeps: bool
) -> dict[str, Any]:
    """Fetch the lists of a server as the gateway does; raises McpError or TargetError."""
    from portico.core.catalog.catalog_store import CatalogStore
    from portico.core.catalog.history_store import histories
    from portico.core.config.paths import cache_folder, state_folder
    from portico.core.state.user_secret import user_secret
    from portico.gateway.members.member_kinds import (
        MemberEnvironment,
        MemberLimits,
        member_of,
        no_history,
    )

    warnings: list[str] = []
    notes: list[str] = []
    if within_s is not None:
        times = replace(server.timeouts, init=within_s, list=within_s)
        server = replace(server, timeouts=times)
    environment = MemberEnvironment(
        info={"name": "portico", "title": "Portico", "version": version},
        memory=CatalogStore(os.path.join(cache_folder(), "catalogs")) if keeps else None,
        secret=user_secret(state_folder()) if keeps else b"",
        report=warnings.append,
        on_stderr=lambda _name, _line: None,
        history=histories(config.path, notes.append) if keeps else no_history,
    )
    limits = MemberLimits(config.path, None, config.gateway.max_tools)
    provider = member_of(server, environment, limits).provider
    try:
        await provider.fetch_catalog()
        catalog = provider.offered()
        connections = provider.status()["connections"]
    finally:
        await provider.close()
    assert catalog is not None
    if warnings and not any(kind in catalog.offer.lists for kind in KINDS):
        raise McpError(warnings[0])
    return {**_outcome(server, catalog, _transport(connections)), "warnings": warnings + notes}


def _transport(connections: Sequence[Mapping[str, Any]]) -> str:
    """Return the transport of the open connection; empty if the server has closed it."""
    return next((one["transport"] for one in connections if one["transport"]), "")


def _outcome(server: ServerEntry, catalog: "Catalog", transport: str) -> dict[str, Any]:
    """Describe a server that could be listed, if only in part."""
    offer = catalog.whole
    said = members(offer.introduction)
    modern = members(said.get("_meta", NO_RAW)).get(SERVER_INFO_KEY)
    names = {kind: offer.listed(kind).keys for kind in KINDS}
    return {
        "ok": True,
        "info": decoded(modern or said.get("serverInfo", NO_RAW), dict[str, Any]) or {},
        "protocolVersion": offer.version.text,
        "era": "modern" if offer.version.modern else "legacy",
        "transport": transport,
        **{kind: len(keys) for kind, keys in names.items()},
        "hidden": sum(not server.tools.allows(name) for name in names["tools"]),
    }
