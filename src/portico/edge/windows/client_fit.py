"""Which endpoint each client of a gateway gets: windows by their preferences, HTTP clients by their
names."""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from portico.core.model.types import Endpoint
from portico.edge.fit.exposure_choice import ClientFacts, ExposureChoice, GatewayFacts, choose
from portico.edge.fit.fitted_endpoint import Choose, Chosen, FittedEndpoint
from portico.edge.fit.http_endpoint import FittedHttpEndpoint
from portico.edge.windows.preferences import Preferences
from portico.edge.windows.window_fit import kept_choice, window_facts

FindExposed = Callable[[bool], Endpoint]
"""Returns the endpoint with the meta-tools, or the one with every tool."""
_MANY = "many"


class ClientFit:
    """Chooses between the two endpoints of a gateway, for each of its clients."""

    def __init__(
        self,
        gateway: Callable[[], GatewayFacts],
        expose: str,
        client: str,
        counting: Callable[[], "asyncio.Task[None] | None"] = lambda: None,
    ) -> None:
        """`expose` and `client` are the options of the gateway's own command line, for HTTP;
        `counting` returns the wait for the number of tools, while that is not known."""
        self._counting = counting
        self._gateway = gateway
        self._expose = expose
        self._client = client
        self._http: dict[str, FittedHttpEndpoint] = {}

    def window(self, preferences: Preferences, find: FindExposed) -> tuple[Endpoint, Preferences]:
        """Return the endpoint of a window, and the preferences for the next owner, which may know
        another number of tools."""
        many = preferences.get(_MANY)
        has_many = many is True if many is not None else None
        if has_many is None and self._counting() is None:
            has_many = self._gateway().has_many
        kept = kept_choice(preferences)

        def choose_for(name: str, version: str) -> Chosen:
            facts = window_facts(preferences, name, version)
            choice = kept or self._chosen(facts, has_many)
            return choice if isinstance(choice, asyncio.Task) else (find(choice.searches), choice)

        return FittedEndpoint(choose_for), {} if has_many is None else {_MANY: has_many}

    def _chosen(
        self, facts: ClientFacts, has_many: bool | None = None
    ) -> "ExposureChoice | asyncio.Task[None]":
        """Return the choice, or the task to wait for if it depends on the number of tools."""
        gateway, counting = self._gateway(), self._counting()
        if has_many is not None:
            gateway = replace(gateway, has_many=has_many)
        elif counting is not None:
            few, many = (choose(facts, replace(gateway, has_many=one)) for one in (False, True))
            if few.expose != many.expose:
                return counting
        return choose(facts, gateway)

    def http(self, group: str, find: FindExposed) -> FittedHttpEndpoint:
        """Return the endpoint of the HTTP clients of all servers, or of a group."""
        if group not in self._http:
            self._http[group] = FittedHttpEndpoint(self._choose_for(find))
        return self._http[group]

    def _choose_for(self, find: FindExposed) -> Choose:
        def choose_for(name: str, version: str) -> Chosen:
            choice = self._chosen(ClientFacts(self._expose, self._client, name, version))
            return choice if isinstance(choice, asyncio.Task) else (find(choice.searches), choice)

        return choose_for

    def http_choices(self) -> list[ExposureChoice]:
        """Return the exposures of the HTTP clients."""
        return [choice for endpoint in self._http.values() for choice in endpoint.choices()]
