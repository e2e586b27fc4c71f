"""The tables of agents and of routing as data, with the reader of each key."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct, field

from portico.core.config.agent_presets import PRESETS, AgentPreset
from portico.core.config.agent_values import permission_rules, session_options, words
from portico.core.config.values import (
    choice,
    flag,
    integer,
    non_empty,
    number,
    pairs,
    readers,
    table,
    text,
    texts,
)
from portico.core.model.defaults import KEPT_DAYS, KEPT_TASKS, MAX_KEPT_TASKS

if TYPE_CHECKING:
    import re

_MAX_PRIORITY = 1000
_FS_READS, _FS_WRITES = ("read", "read-write"), ("write", "read-write")


class RateLimit(Struct, frozen=True, kw_only=True):
    """The limits of one agent over sliding windows; None for no limit."""

    requests_per_minute: Annotated[int | None, integer(1)] = None
    requests_per_day: Annotated[int | None, integer(1)] = None
    tokens_per_day: Annotated[int | None, integer(1)] = None
    """Of the tokens that the agent reports."""
    cost_per_day: Annotated[float | None, number()] = None
    """Of the cost that the agent reports, in the agent's currency."""


class AgentPermissions(Struct, frozen=True, kw_only=True):
    """The answers to an agent's permission requests: deny wins, then ask_about, then allow.

    A rule is the kind of a tool, such as `edit`, or `edit:src/**` for some paths only. A relative
    path is inside the folder of the task; others begin with `/` or `~`.
    """

    allow: Annotated[tuple[str, ...], permission_rules] = ()
    ask_about: Annotated[tuple[str, ...], permission_rules] = ()
    deny: Annotated[tuple[str, ...], permission_rules] = ()
    default: Annotated[str, choice("allow", "ask", "deny")] = "ask"
    """For requests that no rule covers."""
    ask: Annotated[str, choice("person", "model")] = "person"
    """The one who may answer; a person always may."""
    timeout_s: Annotated[float, number()] = 300.0
    """A question without an answer is rejected after this time."""
    always: Annotated[bool, flag] = False
    """Whether an option that allows all further requests may be chosen."""

    @property
    def restricts(self) -> bool:
        """True if its rules or its default withhold something that an agent might do."""
        if self.deny or self.ask_about or self.default == "deny":
            return True
        return bool(self.allow) and self.default == "ask"


class AgentCallbacks(Struct, frozen=True, kw_only=True):
    """The services that an agent may request from Portico, within its task's folder."""

    fs: Annotated[str, choice("off", "read", "write", "read-write")] = "off"
    terminal: Annotated[bool, flag] = False

    @property
    def reads(self) -> bool:
        """True if it may read files."""
        return self.fs in _FS_READS

    @property
    def writes(self) -> bool:
        """True if it may write files."""
        return self.fs in _FS_WRITES


class AgentPool(Struct, frozen=True, kw_only=True):
    """The warm processes of an agent: started and initialized, without a session."""

    min: Annotated[int, integer(0, 16)] = 0
    """Kept from the start; otherwise none is started before the first delegation."""
    max: Annotated[int, integer(0, 16)] = 1
    max_age_s: Annotated[float, number()] = 600.0


class AgentTimeouts(Struct, frozen=True, kw_only=True):
    """The timeouts of an agent, in seconds."""

    start: Annotated[float, number()] = 60.0
    idle: Annotated[float, number()] = 600.0
    """Without an update, and without an open question."""
    hard: Annotated[float, number()] = 3600.0
    """Of the whole task."""


class AgentEntry(Struct, frozen=True, kw_only=True):
    """One agent: the command that runs it, and what it may do."""

    id: Annotated[str, non_empty]
    name: Annotated[str, text] = ""
    description: Annotated[str, text] = ""
    kind: Annotated[str, choice("acp", "cli", "line")] = "acp"
    preset: Annotated[str, choice(*PRESETS)] = ""
    command: Annotated[str, non_empty] = ""
    args: Annotated[tuple[str, ...], texts] = ()
    env: Annotated[Mapping[str, str], pairs] = field(default_factory=dict)
    cwd: Annotated[str | None, non_empty] = None
    enabled: Annotated[bool, flag] = True
    capabilities: Annotated[tuple[str, ...], words] = ()
    """The task types that it accepts."""
    priority: Annotated[int, integer(0, _MAX_PRIORITY)] = 0
    """Higher ones are preferred."""
    rate_limit: Annotated[RateLimit, table(readers(RateLimit))] = RateLimit()
    max_concurrent: Annotated[int | None, integer(1, 1000)] = None
    """Its tasks at once; None for the limit of all agents."""
    permissions: Annotated[AgentPermissions, table(readers(AgentPermissions))] = AgentPermissions()
    callbacks: Annotated[AgentCallbacks, table(readers(AgentCallbacks))] = AgentCallbacks()
    pool: Annotated[AgentPool, table(readers(AgentPool))] = AgentPool()
    timeouts: Annotated[AgentTimeouts, table(readers(AgentTimeouts))] = AgentTimeouts()
    mode: Annotated[str, non_empty] = ""
    """The session mode to set, by the agent's own name for it."""
    options: Annotated[Mapping[str, str | bool], session_options] = field(default_factory=dict)
    """The session's config options to set, by the agent's own ids."""
    supervised: Annotated[bool, flag] = False
    """Whether its user knows that it requests permissions; a preset knows that by itself."""
    auth_method: Annotated[str, non_empty] = ""
    """The authentication method to use, by the agent's own id; empty if it needs none."""
    login: Annotated[str, non_empty] = ""
    """The command with which a person logs in, for messages; Portico does not run it."""
    worktree: Annotated[bool, flag] = False
    """Whether each task gets a git worktree of its own."""
    tools: Annotated[tuple[str, ...], words] = ()
    """Patterns of Portico's tools that it may call; empty for none."""
    max_depth: Annotated[int, integer(0, 8)] = 0
    """How many further delegations may follow one of its own."""
    problem: str = ""
    """Why it cannot be started: a reference that cannot be resolved. Empty if it can."""

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name or self.id

    @property
    def known(self) -> AgentPreset | None:
        """Its preset."""
        return PRESETS.get(self.preset)

    @property
    def login_command(self) -> str:
        """The command with which a person logs in: its own, or that of its preset."""
        return self.login or ("" if self.known is None else self.known.login)

    @property
    def is_supervised(self) -> bool:
        """True if it is known to request permissions."""
        return not self.unsupervised_because

    @property
    def unsupervised_because(self) -> str:
        """Why it is not known to request permissions; empty if it is."""
        if self.kind != "acp":
            return f"an agent of kind {self.kind} cannot request permissions"
        if self.supervised:
            return ""
        if self.known is None:
            return "an agent without a preset may not request permissions"
        return self._override_of(self.known)

    def _override_of(self, preset: AgentPreset) -> str:
        """Return why the agent of a preset may not request permissions as the preset requires."""
        for mode in (self.mode, self.options.get("mode", "")):
            if mode and mode not in preset.modes:
                return f"in mode {mode}, {preset.name} may not request all permissions"
        words = [arg.partition("=")[0] for arg in self.args]
        for name in preset.overrides:
            if name in words or name in self.options or self.env.get(name) != preset.env.get(name):
                return f"with {name}, {preset.name} may not request all permissions"
        return ""

    @property
    def default_type(self) -> str:
        """The type of a task for this agent that is given without one."""
        first = self.capabilities[0] if self.capabilities else ""
        return "general" if self.accepts("general") else first

    def accepts(self, task_type: str) -> bool:
        """True if it has the capability that a task of this type requires."""
        return task_type in self.capabilities

    def __repr__(self) -> str:
        return f"Agent({self.id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Arguments and variables hold secrets.
        return [("id", self.id)]


class Retention(Struct, frozen=True, kw_only=True):
    """How long finished tasks are kept."""

    days: Annotated[float, number()] = KEPT_DAYS
    count: Annotated[int, integer(1, MAX_KEPT_TASKS)] = KEPT_TASKS


class AgentsDefaults(Struct, frozen=True, kw_only=True):
    """The settings of all agents together."""

    max_concurrent: Annotated[int, integer(1, 1000)] = 5
    """Delegated tasks at once; further ones wait in order."""
    sync_budget_s: Annotated[float, number()] = 45.0
    """A call that takes longer becomes a background task."""
    strategy: Annotated[str, choice("priority", "round-robin", "least-used")] = "priority"
    """The choice among agents of equal priority."""
    roots: Annotated[tuple[str, ...], words] = ()
    """Folders, besides those of the client, in which tasks may work."""
    keep_tasks: Annotated[Retention, table(readers(Retention))] = Retention()


class RoutingRule(Struct, frozen=True, kw_only=True):
    """The agents to prefer for tasks of a type, or for those whose prompt has a keyword."""

    task_type: Annotated[str, non_empty]
    keywords: Annotated[tuple[str, ...], words] = ()
    """Words or phrases; empty for every prompt."""
    preferred_agents: Annotated[tuple[str, ...], words]
    priority: Annotated[int, integer(0, _MAX_PRIORITY)] = 0
    """Rules with a higher one are tried first; then those that are first in the file."""

    def keyword_in(self, prompt: str) -> str | None:
        """The first keyword that occurs in a prompt; empty if the rule needs none."""
        if not self.keywords:
            return ""
        folded = _folded(prompt)
        return next((word for word in self.keywords if _is_in(word, folded)), None)

    def matches(self, task_type: str, prompt: str) -> bool:
        """True if the rule is for this task."""
        return task_type == self.task_type and self.keyword_in(prompt) is not None


class AgentsConfig(Struct, frozen=True, kw_only=True):
    """The tables of agents and of routing."""

    defaults: AgentsDefaults = AgentsDefaults()
    entries: Mapping[str, AgentEntry] = field(default_factory=dict)
    """The agents by id, in the order of the file."""
    rules: tuple[RoutingRule, ...] = ()
    """In the order in which they are tried."""

    @property
    def rate_limits(self) -> "dict[str, RateLimit]":
        """The limits of each agent, by its id."""
        return {id: entry.rate_limit for id, entry in self.entries.items()}


def occurs(keyword: str, prompt: str) -> bool:
    """True if a keyword is in a prompt as a word or phrase, in upper or lower case."""
    return _is_in(keyword, _folded(prompt))


def _is_in(keyword: str, folded: str) -> bool:
    return _pattern(keyword).search(folded) is not None


@lru_cache(1024)
def _pattern(keyword: str) -> "re.Pattern[str]":
    import re

    phrase = r"\s+".join(map(re.escape, _folded(keyword).split()))
    return re.compile(rf"(?<!\w){phrase}(?!\w)")


def _folded(text: str) -> str:
    from unicodedata import normalize

    return normalize("NFC", text).casefold()
