"""Tools rendered for a model: briefly, or with the whole definition."""

from collections.abc import Mapping
from typing import Any

import msgspec

from portico.core.catalog.namespaced import NamespacedOffer
from portico.core.catalog.parameter_summary import parameters
from portico.core.catalog.sanitize import sanitize_json, sanitize_text
from portico.core.catalog.sanitize_offer import FLAG
from portico.core.model.wording import counted

MAX_LINE = 240
MAX_TEXT = 8_000
MAX_DEFINITION = 60_000


def brief(namespaced: NamespacedOffer, tool: str, name: str, call: str) -> dict[str, Any]:
    """Return the name, one line of description, compact parameters, and the meta-tool to call."""
    definition = namespaced.definition(tool)
    shown = {
        "name": name,
        "server": namespaced.server,
        "description": one_line(text(definition, "description") or text(definition, "title")),
        "parameters": parameters(definition.get("inputSchema")),
        "call": call,
    }
    if is_flagged(definition):
        shown["warning"] = _WARNING
    return shown


def full(namespaced: NamespacedOffer, tool: str, name: str, call: str) -> dict[str, Any]:
    """Return the whole definition, the server it belongs to, and the meta-tool to call."""
    definition = namespaced.definition(tool)
    words = text(definition, "description")
    if len(words) > MAX_TEXT:
        more = len(words) - MAX_TEXT
        definition["description"] = f"{words[:MAX_TEXT]}… ({more} more characters)"
    shown: dict[str, Any] = {"name": name, "server": namespaced.server, "tool": sanitize_text(tool)}
    shown["call"] = call
    if is_flagged(definition):
        shown["warning"] = _WARNING
    definition.pop("name", None)
    for key in ("outputSchema", "inputSchema"):
        if len(msgspec.json.encode(definition)) > MAX_DEFINITION and key in definition:
            # It would fill a model's context; the arguments are validated anyway.
            definition[key] = f"omitted, too large: {parameters(definition[key])}"
    return {**shown, "definition": definition}


_WARNING = "hidden characters in this definition: escaped in texts, unchanged in values"


def is_flagged(definition: Mapping[str, Any]) -> bool:
    """True if the definition contains hidden characters."""
    meta = definition.get("_meta")
    return isinstance(meta, Mapping) and bool(meta.get(FLAG))


def brief_text(tool: Mapping[str, Any]) -> str:
    """Render a found tool in a few lines."""
    lines = [f"**{tool['name']}**  {tool['description']}".rstrip(), f"  {tool['parameters']}"]
    lines.append(f"  call: {tool['call']}")
    if "warning" in tool:
        lines.append(f"  ({tool['warning']})")
    return "\n".join(line for line in lines if line.strip())


def full_text(tool: Mapping[str, Any]) -> str:
    """Render a described tool as text."""
    definition = dict(tool["definition"])
    origin = f"  ({tool['tool']} of {tool['server']})" if tool["server"] else ""
    lines = [f"**{tool['name']}**{origin}", f"call: {tool['call']}"]
    if "warning" in tool:
        lines.append(f"({tool['warning']})")
    for key in ("title", "description"):
        value = definition.pop(key, "")
        if isinstance(value, str) and value:
            lines.append(value)
    lines.append(sanitize_json(msgspec.json.encode(definition).decode()))
    return "\n".join(lines)


def text(definition: Mapping[str, Any], key: str) -> str:
    """Return a text of a definition; empty if the value is not a string."""
    value = definition.get(key)
    return value if isinstance(value, str) else ""


def one_line(words: str, limit: int = MAX_LINE) -> str:
    """Shorten a text to one line."""
    line = " ".join(words[: limit * 4].split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def brief_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of the gateway, and a line for each server."""
    gateway = {key: status["gateway"][key] for key in ("version", "tools")}
    return {"gateway": gateway, "servers": [_status_line(one) for one in status["servers"]]}


def _status_line(server: Mapping[str, Any]) -> str:
    tools = "tools not known yet" if server["pending"] else counted(server["tools"], "tool")
    left_out = server["omitted"].get("tools")
    if left_out:
        there = counted(server["tools"] + left_out, "tool")
        tools = f"{server['tools']} of {there} (limited by max_tools)"
    shown = f"{server['server']}: {server['state']}, {tools}"
    if not server["error"]:
        return shown
    age = server["age_s"]
    old = f", {_age(age)} old" if age is not None else ""
    retry = server["retry_in_s"]
    again = f", next try in {_age(retry)}" if retry is not None else ""
    return f"{shown}{old}{again}: {server['error'].splitlines()[0]}"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
