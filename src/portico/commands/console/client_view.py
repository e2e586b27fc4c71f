"""`portico inspect --as CLIENT`: the tools that a client would get, without starting anything."""

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from portico.commands.console.render import BYTES_PER_TOKEN, Screen, first_line
from portico.core.config.client_exposure import KNOWN_CLIENTS, known_client
from portico.core.config.paths import config_file
from portico.core.config.read import read
from portico.core.documents.problems import suggestion
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted
from portico.edge.fit.exposure_choice import ClientFacts, ExposureChoice, choose

if TYPE_CHECKING:
    from portico.core.config.schema import Config

_SHOWN = {"all": "every tool", "search": "the meta-tools"}


def show_as(client: str, path: str | None, portico_version: str, *, as_json: bool) -> int:
    """Show what a client of the configured gateway would be shown, from the catalogs on disk."""
    from portico.gateway.serve.cached_catalogs import cached_view

    config = read(path or config_file())
    facts = _facts(client, config)
    view = cached_view(config, portico_version, lambda gateway: choose(facts, gateway))
    choice, catalog, unknown = view
    tools = catalog.offer.listed("tools")
    instructions = msgspec.json.decode(catalog.offer.introduction).get("instructions", "")
    screen = Screen(sys.stdout)
    if as_json:
        shown = [msgspec.json.decode(raw) for raw in tools.items]
        data = {"expose": choice.expose, "why": choice.why, "instructions": instructions}
        data |= {"unknown_servers": unknown}
        screen.compact({"client": client, **data, "tools": shown})
        return 0
    _show(screen, choice, instructions, dict(zip(tools.keys, tools.items, strict=True)))
    if unknown:
        names = ", ".join(unknown)
        screen.print(f"never listed so far: {names}; run `portico serve` once", "yellow")
    return 0


def _facts(client: str, config: "Config") -> ClientFacts:
    """Return what is known of a client by one of its names; raises PorticoError."""
    name, _, version = client.partition("@")
    known = known_client(name)
    if known is None and name not in config.clients:
        names = [*(one.name for one in KNOWN_CLIENTS), *config.clients]
        hint = suggestion(name, names) or f"choose from {', '.join(dict.fromkeys(names))}"
        raise PorticoError(f"--as: no client is known as {name[:80]!r}; {hint}")
    if known is None or name == known.name:
        wire = "" if known is None else known.wire[0].removesuffix("*")
        return ClientFacts(given=name, name=wire if version else "", version=version)
    return ClientFacts(name=name, version=version)


def _show(
    screen: Screen, choice: ExposureChoice, instructions: str, tools: dict[str, bytes]
) -> None:
    tokens = sum(map(len, tools.values())) // BYTES_PER_TOKEN
    shown = f"{counted(len(tools), 'tool')}, about {tokens:,} tokens as definitions"
    screen.print(f"It is shown {_SHOWN[choice.expose]}: {choice.why}", "bold")
    screen.print(f"  {shown}")
    screen.print("")
    screen.print("Instructions", "bold")
    screen.print(f"  {instructions}")
    screen.print("")
    screen.print("Tools", "bold")
    for name, raw in tools.items():
        definition: dict[str, Any] = msgspec.json.decode(raw)
        screen.print(f"  {name}  {first_line(str(definition.get('description') or ''))}")
