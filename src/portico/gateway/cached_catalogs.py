"""What is known of a config's servers while none of them runs."""

import os
from typing import TYPE_CHECKING, Any

from portico.catalog.catalog_store import CatalogStore
from portico.catalog.history_store import histories
from portico.catalog.upstream_key import user_secret
from portico.config.paths import cache_folder, state_folder
from portico.config.schema import Config
from portico.gateway.member_kinds import MemberEnvironment
from portico.gateway.registry import Registry
from portico.gateway.serve_options import ServeOptions
from portico.model.errors import PorticoError

if TYPE_CHECKING:
    from portico.search.searcher import Searcher


def cached_status(config: Config, version: str) -> dict[str, Any]:
    """The status of a gateway that does not run: what its servers offered when last asked."""
    told = _registry(config, version).status()
    del told["gateway"]["uptime_s"]
    return told


def cached_tools(config: Config, version: str) -> list[str]:
    """The names of the tools that its servers offered when last asked."""
    namespaced_offers = _registry(config, version).merged.namespaced_offers.values()
    return [name for namespaced in namespaced_offers for name in namespaced.tools.values()]


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
    raise PorticoError("a gateway that does not run searches nothing")


def _ignore(*_: object) -> None:
    """Nothing is started, so nothing happens."""
