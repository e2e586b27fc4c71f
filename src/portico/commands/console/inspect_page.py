"""The page of `portico inspect`: the chain, then each component with its rights and its offer."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from portico.commands.console.inspected import Inspected
from portico.commands.console.render import BYTES_PER_TOKEN, Screen, first_line, size
from portico.core.catalog.merge import Clash
from portico.core.catalog.parameter_summary import parameters
from portico.edge.client.listing import Listing
from portico.library.components.command_name import title_of_command
from portico.library.components.grants import Grants

_PROCESSES = {
    "portico": "Portico's own",
    "own": "its own",
    "remote": "on another machine, or one that runs already",
}
_ORIGINS = {"beside": " (beside it)", "installed": "", "missing": " (not found)"}
Row = tuple[str, str]


def show_one(screen: Screen, found: Inspected) -> None:
    """Print the page of a single component."""
    _title(screen, found, "")
    _details(screen, found)


def show_chain(screen: Screen, rows: Sequence[Row], found: Sequence[Inspected]) -> None:
    """Print the chain in order, and each component below it."""
    screen.print("Chain", "bold")
    for name, what in rows:
        screen.print(f"  {name.ljust(max(len(row[0]) for row in rows))}  {what}")
    for one in found:
        screen.print("")
        _title(screen, one, f"{one.component.name}: ")
        _details(screen, one)


def show_clashes(screen: Screen, clashes: Sequence[Clash]) -> None:
    """Print the names that two components offer."""
    if clashes:
        screen.table("Clashes", [(str(one),) for one in clashes])
        screen.print("  `portico run` accepts them with --prefix, or --shadow NAME")


def chain_rows(found: Sequence[Inspected], transport: str = "stdio, or HTTP") -> list[Row]:
    """Return the stages of a chain in order, with a description of each."""
    rows = [(one.component.name, _identity(one)) for one in found]
    return [
        ("transport", transport),
        *rows,
        ("terminus", "returns the error that nothing offers a name"),
    ]


def _title(screen: Screen, found: Inspected, name: str) -> None:
    seen = found.introduced
    if seen is None:
        screen.print(f"{name or found.component.name + ': '}{found.role}", "bold")
        return
    title = seen.info.get("title")
    own = f"{seen.info.get('name', found.component.label)} {seen.info.get('version', '')}".rstrip()
    screen.print(f"{name}{own} · {title}" if isinstance(title, str) else f"{name}{own}", "bold")


def _details(screen: Screen, found: Inspected) -> None:
    for key, what in _rows(found):
        screen.print(f"  {key.ljust(8)}  {what}")
    if found.error:
        screen.print(f"  failed    {found.error}", "red")
    seen = found.introduced
    if seen is not None and seen.instructions:
        screen.print("")
        screen.print("Instructions", "bold")
        for line in seen.instructions.strip().splitlines():
            screen.print(f"  {line}")
    if found.lists is not None:
        _show_lists(screen, found.lists)


def _rows(found: Inspected) -> list[Row]:
    rows: list[Row] = []
    seen = found.introduced
    if seen is not None:
        ms = f"{_ms(seen.start_s)} to start, {_ms(seen.lists_s)} to list"
        rows += [
            ("protocol", f"{seen.version} ({seen.era}) over {seen.transport}"),
            ("offers", _capabilities(seen.capabilities)),
            ("took", ms),
        ]
    elif found.lists is None:
        rows.append(("offers", _unknown_offer(found)))
    rows.append(("is", _identity(found)))
    if found.has_source:
        rows.append(("imports", _imports(found)))
    return rows + (_granted(found.grants) if found.grants is not None else [])


def _identity(found: Inspected) -> str:
    component = found.component
    if component.url:
        what = urlsplit(component.url).hostname or ""
    else:
        what = component.binary or (title_of_command(component.argv) if component.argv else "")
    what = what or component.label
    return f"{found.role}{' of the config' if component.is_alias else ''}: {what}"


def _unknown_offer(found: Inspected) -> str:
    facts = found.facts
    if found.is_middleware:
        return f"the entries behind it; `{facts.links[0]}` may hide, change and add some"
    if not facts.offers:
        return "unknown until it is started"
    names = ", ".join(f"{kind.removesuffix('s')} {name}" for kind, name in facts.offers)
    return f"{names} (in its text; it was not started)"


def _imports(found: Inspected) -> str:
    imports = found.facts.imports
    named = (f"{one.name}{_ORIGINS[one.origin]}" for one in imports)
    return ", ".join(named) or "only Python's own modules and Portico"


def _granted(grants: Grants) -> list[Row]:
    if grants.process == "none":
        return [("granted", "nothing: it is data; the functions of --handlers are in Portico")]
    if grants.process == "sandbox":
        rows = [("process", "a worker of its own, sandboxed")]
        return rows + [("granted", one) for one in grants.granted or ("nothing",)]
    process = _PROCESSES[grants.process]
    if grants.process == "remote":
        headers = f"the headers {', '.join(grants.added)}" if grants.added else "requests only"
        return [("process", process), ("granted", headers)]
    return [
        ("process", f"{process}, in {grants.folder}"),
        ("granted", "all files and the network: it is not sandboxed"),
        ("env", _variables(grants)),
    ]


def _variables(grants: Grants) -> str:
    if grants.is_reduced:
        return ", ".join(grants.variables)
    shown = f"your {len(grants.variables)} variables"
    if grants.added:
        shown += f", with {', '.join(grants.added)}"
    return f"{shown}; possibly secret: {', '.join(grants.secrets)}" if grants.secrets else shown


def _show_lists(screen: Screen, lists: dict[str, Listing]) -> None:
    for kind, (heading, key, more) in _TABLES.items():
        found = lists[kind]
        if found.items:
            rows = [(item[key], more(item), _about(item)) for item in found.items]
            tokens = f"{size(found.size)}, about {found.size // BYTES_PER_TOKEN:,} tokens"
            weight = f": {tokens}" if kind == "tools" else ""
            screen.table(f"{heading} ({len(rows)}{weight})", rows)
    if not any(listing.items for listing in lists.values()):
        screen.print("\nThe server lists no tools, resources or prompts.")


def _arguments(prompt: dict[str, Any]) -> str:
    given = prompt.get("arguments")
    known = [a for a in given if isinstance(a, dict)] if isinstance(given, list) else []
    return ", ".join(f"{a.get('name')}{'*' if a.get('required') is True else ''}" for a in known)


def _mime(resource: dict[str, Any]) -> str:
    return str(resource.get("mimeType") or "")


_TABLES: dict[str, tuple[str, str, Callable[[dict[str, Any]], str]]] = {
    "tools": ("Tools", "name", lambda tool: parameters(tool.get("inputSchema"), nulls=True)),
    "resources": ("Resources", "uri", _mime),
    "templates": ("Resource templates", "uriTemplate", _mime),
    "prompts": ("Prompts", "name", _arguments),
}
"""The title of each kind's table, the key of its first column, and its second column."""


def _about(item: dict[str, Any]) -> str:
    return first_line(item.get("description")) or first_line(item.get("title"))


def _capabilities(capabilities: Any) -> str:
    parts = []
    for name, detail in capabilities.items():
        options = ", ".join(detail) if isinstance(detail, dict) else ""
        parts.append(f"{name} ({options})" if options else name)
    return ", ".join(parts) or "nothing"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"
