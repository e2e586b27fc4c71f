"""Reads the links of the gateway: files, and components of the config by their names."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from portico.core.config.expand import Sources
from portico.core.documents.names import is_valid_name
from portico.core.documents.problems import Path, Report

_OF_MEMBER = {
    *("command", "handlers", "python", "env", "cwd", "folder", "instances", "sharing", "tools"),
    *("may_ask", "trust_hints", "timeouts", "max_in_flight", "max_tools", "sync_budget_s"),
}
"""Keys of a component that have no effect on a link."""


def read_links(
    report: Report,
    data: Mapping[str, Any],
    given: Sequence[str],
    servers: Collection[str],
    sources: Sources,
) -> tuple[str, ...]:
    """Return the links: the names of components as they are, and files with their whole paths."""
    components = data.get("components")
    named = components if isinstance(components, dict) else {}
    for number, link in enumerate(given):
        at: Path = ("gateway", "links", number)
        if not link.strip():
            if isinstance(data["gateway"]["links"][number], str):
                report.wrong(at, "is empty", "give a Python file")
        elif link in named:
            if link in given[:number]:
                report.wrong(at, f"names {link} again", "remove one of them")
                continue
            entry = named[link] if isinstance(named[link], dict) else {}
            for key in filter(_OF_MEMBER.__contains__, entry):
                what = "is not for a component in gateway.links"
                report.wrong(("components", link, key), what, "remove it, or the link")
        elif link in servers:
            report.wrong(at, f"{link} is a server, not middleware", "give a file or a component")
        elif is_valid_name(link) and not os.path.exists(sources.path(link)):
            what = f"{link} is neither a component nor a file"
            how = f"add [components.{link}], or give a path, such as ./{link}.py"
            report.wrong(at, what, how)
    return tuple(one if one in named else sources.path(one) for one in given)
