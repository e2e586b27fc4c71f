"""The status of a config's servers from their catalogs on disk, while no gateway runs."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from portico.core.catalog.catalog import Catalog
from portico.core.catalog.catalog_store import CatalogStore
from portico.core.catalog.history_store import histories
from portico.core.catalog.namespaced import NamespacedOffer
from portico.core.config.paths import cache_folder, state_folder
from portico.core.config.schema import Config
from portico.core.model.errors import PorticoError
from portico.core.model.offer import KINDS
from portico.core.state.user_secret import user_secret
from portico.edge.fit.exposure_choice import ExposureChoice, GatewayFacts
from portico.gateway.members.member_kinds import MemberEnvironment
from portico.gateway.registry.registry import Registry
from portico.gateway.serve.serve_options import ServeOptions

if TYPE_CHECKING:
    from portico.gateway.search.searcher import Searcher


def cached_status(config: Config, version: str) -> dict[str, Any]:
    """Return the status of a gateway that does not run, from the last known catalogs."""
    status = _registry(config, version).status()
    del status["gateway"]["uptime_s"]
    return status


def cached_tools(config: Config, version: str) -> list[str]:
    """Return the names of the tools in the last known catalogs."""
    namespaced_offers = _registry(config, version).merged.namespaced_offers.values()
    return [name for namespaced in namespaced_offers for name in namespaced.tools.values()]


def cached_offers(config: Config, version: str) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the definitions in the last known catalogs, by server and kind, under the names that
    the gateway exposes; a server that was never listed is absent."""
    registry = _registry(config, version)
    found = registry.merged.namespaced_offers.items()
    return {
        name: {kind: _definitions(offer, kind) for kind in KINDS}
        for name, offer in found
        if not registry.members[name].is_pending
    }


def cached_view(
    config: Config, version: str, choose: Callable[[GatewayFacts], ExposureChoice]
) -> tuple[ExposureChoice, Catalog, list[str]]:
    """Return the exposure that is chosen, its catalog from the last known ones, and the servers
    that were never listed."""
    registry = _registry(config, version)
    choice = choose(registry.facts())
    return choice, registry.shown(choice.searches), registry.pending(registry.members)


def _definitions(namespaced: NamespacedOffer, kind: str) -> list[dict[str, Any]]:
    listed = namespaced.listed(kind)
    items: list[dict[str, Any]] = [msgspec.json.decode(raw) for raw in listed.items]
    if kind in ("tools", "prompts"):
        exposed = namespaced.names(kind)
        return [{**item, "name": exposed[item["name"]]} for item in items]
    return items


def _registry(config: Config, version: str) -> Registry:
    environment = MemberEnvironment(
        info={},
        memory=CatalogStore(os.path.join(cache_folder(), "catalogs")),
        secret=user_secret(state_folder()),
        report=_ignore,
        on_stderr=_ignore,
        gateway=ServeOptions(config, version).key(),
        history=histories(config.path, _ignore),
    )
    return Registry(
        config,
        environment,
        version=version,
        searcher=_no_searcher,
        report_failure=_ignore,
        record_call=_ignore,
    )


def _no_searcher() -> "Searcher":
    raise PorticoError("cannot search: the gateway is not running")


def _ignore(*_: object) -> None:
    """Ignore an event of servers that are never started."""
