"""The choice of what a client is shown: every tool, or the meta-tools that find them."""

from collections.abc import Mapping

from msgspec import Struct

from portico.core.config.client_exposure import KnownClient, known_client
from portico.core.config.schema import ClientSettings

_MAX_SHOWN = 80
"""The letters of a name that a client sent, in a reason."""


class ClientFacts(Struct, frozen=True):
    """All that is known of a client."""

    expose: str = ""
    """`--expose` of its window; empty without."""
    given: str = ""
    """`--client` of its window; empty without."""
    name: str = ""
    """The name in its `clientInfo`; empty if it has sent none."""
    version: str = ""
    environment: str = ""
    """The client that the environment of its window points to; empty for none."""

    @property
    def label(self) -> str:
        """Its name and version for people, as far as they are known."""
        if not self.name:
            return self.given
        return f"{self.name} {self.version}".strip()[:_MAX_SHOWN]


class GatewayFacts(Struct, frozen=True):
    """The part of a gateway that the choice depends on."""

    clients: Mapping[str, ClientSettings]
    """The tables `[clients.NAME]`."""
    expose: str
    """`[gateway] expose`."""
    has_many: bool
    """True if there are too many tools to read them all, or if their number was unknown."""
    many: int
    """The number of tools from which on there are too many."""
    is_counted: bool = True
    """False if the number was unknown."""


class ExposureChoice(Struct, frozen=True):
    """The exposure of one client, and why it has it."""

    expose: str
    """`search` or `all`."""
    why: str
    client: str = ""
    """The client's name and version, as far as they are known."""

    @property
    def searches(self) -> bool:
        """True for the meta-tools."""
        return self.expose == "search"


def choose(facts: ClientFacts, gateway: GatewayFacts) -> ExposureChoice:
    """Choose the exposure of a client. These sources are tried in turn:

    1. `--expose`                  unless it is `auto`
    2. `[clients.NAME] expose`     by `--client`, else by `clientInfo`, unless it is `auto`
    3. `[gateway] expose`          unless it is `auto`
    4. `--client`                  a known client defers tools itself, or does not
    5. `clientInfo`                the same
    6. the environment             the same
    7. the number of tools
    """
    if facts.expose:
        set_by, expose = "--expose", facts.expose
    else:
        set_by, expose = _configured(facts, gateway)
    if expose != "auto":
        return ExposureChoice(expose, f"{set_by} is {expose}", facts.label)
    client, source = _recognized(facts)
    if client is None:
        return ExposureChoice(*_by_number(gateway, _unknown(facts)), facts.label)
    sent = facts.version if client.sends(facts.name) else ""
    if client.defers(sent):
        return ExposureChoice("all", f"{source}: it searches tools itself", facts.label)
    return ExposureChoice(*_by_number(gateway, f"{source}: it reads every tool"), facts.label)


def _configured(facts: ClientFacts, gateway: GatewayFacts) -> tuple[str, str]:
    """Return the key of the config that applies to a client, and its value."""
    names = [name for name in (facts.given, facts.name) if name]
    known = [client.name for name in names if (client := known_client(name)) is not None]
    for name in (*names, *known):
        if name in gateway.clients and (expose := gateway.clients[name].expose):
            return f"[clients.{name}] expose", expose
    return "[gateway] expose", gateway.expose


def _recognized(facts: ClientFacts) -> tuple[KnownClient | None, str]:
    """Return the client, if it is a known one, and how it was recognized."""
    if (client := known_client(facts.given)) is not None:
        return client, f"--client {facts.given}"
    if (client := known_client(facts.name)) is not None:
        return client, f"clientInfo {facts.label}"
    if (client := known_client(facts.environment)) is not None:
        return client, f"its environment is that of {client.name}"
    return None, ""


def _unknown(facts: ClientFacts) -> str:
    label = facts.label
    return f"unknown client {label}" if label else "the client has sent no name"


def _by_number(gateway: GatewayFacts, who: str) -> tuple[str, str]:
    if not gateway.has_many:
        return "all", f"{who}; there were fewer than {gateway.many} tools at the start"
    if gateway.is_counted:
        return "search", f"{who}; there were {gateway.many} tools or more at the start"
    return "search", f"{who}; the number of tools was not known at the start"
