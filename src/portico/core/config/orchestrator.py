"""Converts the tables of the multi-agent orchestrator's config into Portico's own."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Struct, field

from portico.core.config.agent_presets import PRESETS
from portico.core.config.agents_tables import read_agents
from portico.core.config.expand import Sources
from portico.core.config.routing_rules import MAX_RULES
from portico.core.config.values import (
    any_table,
    any_value,
    choice,
    flag,
    integer,
    non_empty,
    read_table,
    readers,
    table,
    table_list,
    text,
    texts,
)
from portico.core.documents.names import valid_names
from portico.core.documents.problems import Path, Report, quoted

_STRATEGIES = ("priority", "round-robin", "least-used")
_MAX_PRIORITY = 1000
_ANY_TYPE = "*"
_GENERAL = "general"
_TYPES = {
    "gemini-extension": "a Gemini extension runs only inside Gemini CLI; "
    'use an agent with preset = "gemini"',
    "internal": "it was a part of the orchestrator, and has no command",
}
"""The types of agents that are rejected, and why."""
_MAIN_AGENT = "Portico has no main agent: the client that connects to it has that part"
_POLICIES = 'a plain command cannot be supervised; use kind = "acp" and permissions'
_HTTP = "the orchestrator ignored its host and port, and used stdio; remove http to keep that"


class ImportedTables(Struct, frozen=True, kw_only=True):
    """The converted tables, and a report about the parts that are different or missing."""

    tables: Mapping[str, Any]
    """The new tables by name, to be written as TOML."""
    rejected: tuple[str, ...] = ()
    """Parts that could not be converted, each with the reason."""
    notes: tuple[str, ...] = ()
    """Parts that were changed or left out, each with the reason."""


class _OldLimits(Struct, frozen=True, kw_only=True):
    requests_per_minute: Annotated[int, integer(1)] = 60
    requests_per_day: Annotated[int, integer(1)] = 2000


class _OldAgent(Struct, frozen=True, kw_only=True):
    id: Annotated[str, non_empty]
    name: Annotated[str, text] = ""
    description: Annotated[str, text] = ""
    type: Annotated[str, choice("cli", *_TYPES)] = "cli"
    command: Annotated[str, non_empty] = ""
    args: Annotated[tuple[str, ...], texts] = ()
    capabilities: Annotated[tuple[str, ...], texts] = ()
    priority: Annotated[int, integer(0)] = 0
    rate_limit: Annotated[Mapping[str, int], table(readers(_OldLimits))] = field(
        default_factory=dict
    )
    enabled: Annotated[bool, flag] = True
    policies: Annotated[Any, any_value] = None


class _OldRule(Struct, frozen=True, kw_only=True):
    task_type: Annotated[str, non_empty]
    keywords: Annotated[tuple[str, ...], texts] = ()
    preferred_agents: Annotated[tuple[str, ...], texts] = ()
    priority: Annotated[int, integer(0)] = 0
    enabled: Annotated[bool, flag] = True


class _OldServer(Struct, frozen=True, kw_only=True):
    host: Annotated[str, non_empty] = "127.0.0.1"
    port: Annotated[int, integer(1, 65535)] = 3000
    max_concurrent_tasks: Annotated[int, integer(1, 1000)] = 5


_TOP = {
    "server": table(readers(_OldServer)),
    "main_agent": any_value,
    "agents": any_value,
    "routing": any_table,
    "rate_limiting": any_table,
    "logging": any_table,
}
_RATE_LIMITING = {
    "strategy": choice(*_STRATEGIES),
    "track_usage": any_value,
    "usage_db_path": any_value,
}


def from_orchestrator(data: Mapping[str, Any]) -> ImportedTables:
    """Convert the data of an orchestrator's TOML file; it is checked, and never fails."""
    return _Conversion(data).run()


class _Conversion:
    """Converts one file's data; problems are rejections, and warnings are notes."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._report = Report()
        self._data = read_table(self._report, (), dict(data), _TOP, lenient=True)
        self._gateway: dict[str, Any] = {}
        self._defaults: dict[str, Any] = {}
        self._agents: dict[str, dict[str, Any]] = {}
        """By their old ids."""

    def run(self) -> ImportedTables:
        if "main_agent" in self._data:
            self._report.wrong(("main_agent",), _MAIN_AGENT)
        self._read_server()
        self._read_logging()
        self._read_rate_limiting()
        self._read_agents()
        rules = self._rules()
        agents = self._named_agents()
        tables = {
            "gateway": self._gateway,
            "agents_defaults": self._defaults,
            "agents": agents,
            "routing": {"rules": self._reached(rules, agents)} if rules else {},
        }
        return ImportedTables(
            tables={key: one for key, one in tables.items() if one},
            rejected=tuple(map(str, self._report.problems)),
            notes=tuple(map(str, self._report.warnings)),
        )

    def _read_server(self) -> None:
        found = self._data.get("server", {})
        if "host" in found or "port" in found:
            defaults = _OldServer()
            host = found.get("host", defaults.host)
            shown = f"[{host}]" if ":" in host else host
            self._gateway["http"] = f"{shown}:{found.get('port', defaults.port)}"
            self._report.warn(("server",), _HTTP)
        if "max_concurrent_tasks" in found:
            self._defaults["max_concurrent"] = found["max_concurrent_tasks"]

    def _read_logging(self) -> None:
        at: Path = ("logging",)
        known = {"level": any_value, "output": non_empty}
        found = read_table(self._report, at, self._data.get("logging", {}), known, lenient=True)
        if "level" in found:
            self._report.warn((*at, "level"), "left out: Portico logs every call")
        output = found.get("output", "")
        if output in ("stdout", "stderr"):
            self._report.warn((*at, "output"), "left out: Portico logs to a file of its own")
        elif output:
            self._gateway["log"] = output

    def _read_rate_limiting(self) -> None:
        at: Path = ("rate_limiting",)
        value = self._data.get("rate_limiting", {})
        found = read_table(self._report, at, value, _RATE_LIMITING, lenient=True)
        if "strategy" in found:
            self._defaults["strategy"] = found["strategy"]
        for key in ("track_usage", "usage_db_path"):
            if key in found:
                self._report.warn((*at, key), "left out: Portico always keeps usage, by itself")

    def _read_agents(self) -> None:
        tables = table_list(self._report, ("agents",), self._data.get("agents", []))
        for number, one in enumerate(tables):
            at: Path = ("agents", number)
            before = len(self._report.problems)
            found = read_table(self._report, at, one, readers(_OldAgent), lenient=True)
            if len(self._report.problems) == before:
                self._check_agent(at, found)
            if len(self._report.problems) == before:
                self._agents[found["id"]] = self._agent(at, found)

    def _check_agent(self, at: Path, found: Mapping[str, Any]) -> None:
        wrong = self._report.wrong
        if "id" not in found:
            wrong(at, "has no id")
        elif found["id"] in self._agents:
            wrong((*at, "id"), f"{quoted(found['id'])} is the id of two agents")
        elif found.get("type", "cli") in _TYPES:
            wrong(at, f"{quoted(found['id'])} is not converted: {_TYPES[found['type']]}")
        elif "command" not in found:
            wrong(at, f"{quoted(found['id'])} has no command")

    def _agent(self, at: Path, found: Mapping[str, Any]) -> dict[str, Any]:
        """The new entry: the orchestrator sent one line, and read one line."""
        known = next((name for name, one in PRESETS.items() if one.command == found["command"]), "")
        if known:
            what = f"is a plain command without supervision, as before; consider preset = {known!r}"
            self._report.warn(at, what)
        if "policies" in found:
            self._report.warn((*at, "policies"), f"left out: {_POLICIES}")
        entry = {key: found[key] for key in ("name", "description", "command") if key in found}
        entry |= {"kind": "line", "args": list(found.get("args", ()))}
        entry["capabilities"] = _words(found.get("capabilities", ()))
        entry["priority"] = self._priority(at, found)
        limits = _OldLimits(**found.get("rate_limit", {}))
        entry["rate_limit"] = {key: getattr(limits, key) for key in limits.__struct_fields__}
        if not found.get("enabled", True):
            entry["enabled"] = False
        return entry

    def _priority(self, at: Path, found: Mapping[str, Any]) -> int:
        given: int = found.get("priority", 0)
        if given > _MAX_PRIORITY:
            self._report.warn((*at, "priority"), f"is now {_MAX_PRIORITY}, the highest")
        return min(given, _MAX_PRIORITY)

    def _rules(self) -> list[tuple[Path, dict[str, Any]]]:
        at: Path = ("routing",)
        known = {"rules": any_value, "tier": any_value}
        found = read_table(self._report, at, self._data.get("routing", {}), known, lenient=True)
        if "tier" in found:
            self._report.warn((*at, "tier"), "left out: rules are sorted by priority alone")
        rules: list[tuple[Path, dict[str, Any]]] = []
        tables = table_list(self._report, (*at, "rules"), found.get("rules", []))
        for number, one in enumerate(tables):
            place: Path = (*at, "rules", number)
            before = len(self._report.problems)
            rule = read_table(self._report, place, one, readers(_OldRule), lenient=True)
            if "task_type" not in rule and len(self._report.problems) == before:
                self._report.wrong(place, "has no task_type")
            if len(self._report.problems) == before:
                rules += [(place, each) for each in self._rule(place, rule)]
        return rules

    def _rule(self, at: Path, found: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """The new rules of an old one: several if it was for every type."""
        if not found.get("enabled", True):
            self._report.warn(at, "left out: it is disabled")
            return
        wanted = _words(found.get("preferred_agents", ()))
        agents = [id for id in wanted if id in self._agents]
        for id in wanted:
            if id not in agents:
                where = (*at, "preferred_agents")
                self._report.warn(where, f"{quoted(id)} is left out: it was not converted")
        if not agents:
            self._report.warn(at, "left out: none of its agents was converted")
            return
        for task_type, able in self._types(at, found["task_type"], agents):
            yield {
                "task_type": task_type,
                "keywords": _words(found.get("keywords", ())),
                "preferred_agents": able,
                "priority": self._priority(at, found),
            }

    def _types(
        self, at: Path, task_type: str, agents: list[str]
    ) -> Iterable[tuple[str, list[str]]]:
        """The types of a rule with its agents for each; the agents then have that capability."""
        if task_type == _ANY_TYPE:
            types = dict.fromkeys(one for id in agents for one in self._capabilities(id))
            for type in types:
                yield type, [id for id in agents if type in self._capabilities(id)]
            return
        for id in agents:
            if task_type not in self._agents[id]["capabilities"]:
                self._agents[id]["capabilities"].append(task_type)
                self._report.warn(at, f"{quoted(id)} now has the capability {quoted(task_type)}")
        yield task_type, agents

    def _capabilities(self, id: str) -> list[str]:
        """The capabilities of an agent; the orchestrator required none."""
        found: list[str] = self._agents[id]["capabilities"]
        if not found:
            found.append(_GENERAL)
            self._report.warn(("agents",), f"{quoted(id)} now has the capability {_GENERAL}")
        return found

    def _named_agents(self) -> list[dict[str, Any]]:
        """The agents with valid ids, each with a capability."""
        entries = []
        for id, old in valid_names(self._agents).items():
            if id != old:
                self._report.warn(("agents",), f"{quoted(old)} is not a valid id, and is now {id}")
            entries.append({"id": id, **self._agents[old], "capabilities": self._capabilities(old)})
        return entries

    def _reached(
        self, rules: list[tuple[Path, dict[str, Any]]], agents: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The rules with the new ids, without those that Portico would reject."""
        if len(rules) > MAX_RULES:
            self._report.wrong(("routing", "rules"), f"only the first {MAX_RULES} are converted")
        ids = {old: id for id, old in valid_names(self._agents).items()}
        kept = rules[:MAX_RULES]
        for _, rule in kept:
            rule["preferred_agents"] = [ids[old] for old in rule["preferred_agents"]]
        report = Report()
        data = {"agents": agents, "routing": {"rules": [one for _, one in kept]}}
        read_agents(report, data, Sources({}, "/"), lambda _: False)
        dropped = {one.at[2]: one.what for one in report.problems if one.at[:1] == ("routing",)}
        for number, what in dropped.items():
            assert isinstance(number, int)  # of a rule
            self._report.warn(kept[number][0], f"left out: it {what}")
        return [one for number, (_, one) in enumerate(kept) if number not in dropped]


def _words(values: Iterable[str]) -> list[str]:
    """The values that are not blank, each once."""
    return list(dict.fromkeys(one for one in values if one.strip()))
