"""One component as `portico inspect` finds it: facts, rights, and its offer."""

import argparse
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from portico.commands.console.render import BYTES_PER_TOKEN
from portico.commands.console.target import address_of, open_client
from portico.core.catalog.merge import Clash
from portico.core.model.errors import PorticoError
from portico.core.model.offer import KEYS, KINDS
from portico.edge.client.listing import Listing
from portico.library.components.analyze import SourceFacts, analyze
from portico.library.components.classify import Component, classify
from portico.library.components.file_python import file_run_by
from portico.library.components.grants import Grants, grants_of
from portico.library.components.wasm_link import binary_facts

if TYPE_CHECKING:
    from portico.edge.client.client import Client

_ROLES = {
    "url": "a server at a URL",
    "command": "a program",
    "definitions": "definitions",
    "bundle": "a bundle",
    "wasm": "a WebAssembly component",
}


class Introduced(Struct, frozen=True):
    """The identity of a server, as it introduced itself, and how long that took."""

    info: Mapping[str, Any]
    version: str
    era: str
    transport: str
    capabilities: Mapping[str, Any]
    instructions: str
    start_s: float
    lists_s: float


class Inspected(Struct, kw_only=True):
    """A component, with all that is known about it."""

    component: Component
    role: str
    """Its purpose in the chain, for people."""
    grants: Grants | None
    """None for a file that cannot be used."""
    facts: SourceFacts = SourceFacts()
    has_source: bool = False
    """True if the facts are those of a Python file."""
    introduced: Introduced | None = None
    """None for a component that was not started."""
    lists: dict[str, Listing] | None = None
    """Its offer by kind; None if it is not known."""
    error: str = ""
    """Why it could not be started or listed."""

    @property
    def is_middleware(self) -> bool:
        """True for a file that has links and no server."""
        return self.component.kind in ("python", "wasm") and self.facts.is_middleware_only

    @property
    def rejected(self) -> list[str]:
        """The entries that were left out of its lists, and why."""
        return [reason for one in (self.lists or {}).values() for reason in one.rejected]


async def inspect(component: Component, options: argparse.Namespace) -> Inspected:
    """Inspect one component; it is started only if that is needed to list its offer.

    Raises PorticoError if it fails.
    """
    found = described(component, options.env)
    component = found.component
    if component.kind == "definitions":
        found.lists = definitions(component.path)
    elif component.kind == "python" and found.facts.problem:
        raise PorticoError(found.facts.problem)
    elif not options.static and not found.is_middleware and component.kind != "bundle":
        await _start(found, options)
    return found


def described(
    component: Component, env: Iterable[tuple[str, str]] = (), *, own_process: bool = False
) -> Inspected:
    """Return all that is known of a component without starting it or reading its definitions.

    A file is in Portico's process, unless it has its `own_process`.
    """
    file = "" if component.entry is None else file_run_by(component.argv)
    if file:  # an alias of a file
        component = replace(classify(file), name=component.name, entry=component.entry)
        own_process = True
    source = _source(component)
    facts = analyze(source, component.variable) if source else binary_facts(component)
    grants = grants_of(component, dict(env), own_process=own_process)
    return Inspected(
        component=component,
        role=_role(component, facts),
        grants=grants,
        facts=facts,
        has_source=bool(source) and not facts.problem,
    )


def _source(component: Component) -> str:
    """Return the Python file of a component; empty if it has none."""
    if component.kind == "python":
        return component.path
    script = component.argv[-1] if component.entry is None and component.argv else ""
    is_script = script.endswith(".py") and len(component.argv) <= 2 and os.path.isfile(script)
    return script if is_script else ""


def _role(component: Component, facts: SourceFacts) -> str:
    if facts.is_middleware_only:
        return "sandboxed middleware" if component.kind == "wasm" else "middleware"
    if component.kind in _ROLES:
        return _ROLES[component.kind]
    if facts.links and facts.servers:
        return "a Python server with middleware in front of it"
    return "a Python server" if facts.servers else "a Python file"


def definitions(path: str) -> dict[str, Listing]:
    """Return the lists of a definitions file; raises PorticoError."""
    from portico.library.components.load import read_definitions

    found = read_definitions(path)
    return {kind: listing(getattr(found, kind)) for kind in KINDS}


def listing(items: list[dict[str, Any]]) -> Listing:
    """Return definitions as a list with its size."""
    return Listing(items, size=sum(len(msgspec.json.encode(item)) for item in items))


async def _start(found: Inspected, options: argparse.Namespace) -> None:
    """Start the server of a component, and list its offer."""
    component = found.component
    started = time.perf_counter()
    address = address_of(component, options)
    async with await open_client(address, options, component.entry) as client:
        opened = time.perf_counter()
        found.lists = {kind: await client.listing(kind) for kind in KINDS}
        listed = time.perf_counter()
        found.introduced = _introduced(client, opened - started, listed - opened)
    if component.entry is not None:
        tools, allows = found.lists["tools"], component.entry.tools.allows
        hidden = [tool["name"] for tool in tools.items if not allows(tool["name"])]
        tools.items = [tool for tool in tools.items if allows(tool["name"])]
        tools.rejected += [f"tool {name}: the config filters it out" for name in hidden]


def _introduced(client: "Client", start_s: float, lists_s: float) -> Introduced:
    server = client.server
    return Introduced(
        info=server.info,
        version=server.version.text,
        era="modern" if client.modern else "legacy",
        transport=client.transport,
        capabilities=server.capabilities,
        instructions=server.instructions,
        start_s=start_s,
        lists_s=lists_s,
    )


def clashes(found: Sequence[Inspected]) -> list[Clash]:
    """Return each name and URI that two components offer."""
    owners: dict[tuple[str, str], str] = {}
    clashing = []
    for one in found:
        name = one.component.name
        for kind, key in _offered(one):
            owner = owners.setdefault((kind, key), name)
            if owner != name:
                clashing.append(Clash(kind, key, owner, name))
    return clashing


def _offered(found: Inspected) -> Iterable[tuple[str, str]]:
    """Return the kind and the name or URI of each entry; of a file that was not started, those in
    its text."""
    if found.lists is None:
        return found.facts.offers
    return ((kind, item[KEYS[kind]]) for kind, one in found.lists.items() for item in one.items)


def to_json(found: Inspected) -> dict[str, Any]:
    """Return a component as JSON data."""
    component, facts = found.component, found.facts
    data: dict[str, Any] = {
        "component": {
            "name": component.name,
            "kind": component.kind,
            "label": component.label,
            "path": component.path,
            "role": found.role,
            "servers": facts.servers,
            "links": facts.links,
            "imports": facts.imports,
            "grants": None if found.grants is None else _as_data(found.grants),
            "started": found.introduced is not None,
        }
    }
    if found.error:
        data["error"] = found.error
    if (seen := found.introduced) is not None:
        data |= {
            "server": seen.info,
            "protocolVersion": seen.version,
            "era": seen.era,
            "transport": seen.transport,
            "capabilities": seen.capabilities,
            "instructions": seen.instructions,
            "startMs": round(seen.start_s * 1000, 1),
            "listsMs": round(seen.lists_s * 1000, 1),
        }
    if (lists := found.lists) is not None:
        data |= {("resourceTemplates" if k == "templates" else k): lists[k].items for k in KINDS}
        data["toolBytes"] = lists["tools"].size
        data["toolTokens"] = lists["tools"].size // BYTES_PER_TOKEN
        data["leftOut"] = found.rejected
    elif facts.offers:
        data["registered"] = [{"kind": kind, "name": name} for kind, name in facts.offers]
    return data


def _as_data(grants: Grants) -> dict[str, Any]:
    return {
        "process": grants.process,
        "folder": grants.folder,
        "variables": grants.variables,
        "added": grants.added,
        "secrets": grants.secrets,
        "sandboxed": grants.is_sandboxed,
        "granted": grants.granted,
    }
