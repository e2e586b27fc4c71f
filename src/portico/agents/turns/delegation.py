"""The seam of a delegation: the agent to start, its prompt, the port to its owner, its outcome."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from portico.agents.turns.usage import AgentUsage
from portico.core.config.agents_schema import (
    AgentCallbacks,
    AgentEntry,
    AgentPermissions,
    AgentTimeouts,
)
from portico.upstream.process.environment import clean
from portico.upstream.process.family import Family
from portico.upstream.wires.child_wire import Command

_NO_PAIRS: Mapping[str, str] = {}
_NO_OPTIONS: Mapping[str, str | bool] = {}
_NO_COUNTS: Mapping[str, int] = {}

MAX_TEXT = 1024 * 1024
"""The characters of a result that are kept."""
MAX_LINE = 32 * 1024 * 1024
"""The longest message of an agent, in bytes."""


class StopGrace(Struct, frozen=True, kw_only=True):
    """How long an agent may take for each step of its end, in seconds."""

    cancel_s: float = 5.0
    """To end its turn after `session/cancel`."""
    stdin_s: float = 3.0
    """To exit after its input was closed."""
    term_s: float = 3.0
    """To exit after SIGTERM; SIGKILL follows."""


class AgentLaunch(Struct, frozen=True, kw_only=True):
    """How an agent is started, and what it may do."""

    name: str
    argv: tuple[str, ...]
    kind: str = "acp"
    """`acp`, `cli` or `line`."""
    env: Mapping[str, str] = _NO_PAIRS
    """Added to the few variables that every child gets."""
    cwd: str | None = None
    """The folder of the process; None for the folder of the task."""
    timeouts: AgentTimeouts = AgentTimeouts()
    grace: StopGrace = StopGrace()
    permissions: AgentPermissions = AgentPermissions()
    callbacks: AgentCallbacks = AgentCallbacks()
    mode: str = ""
    """The session mode to set."""
    session_meta: Mapping[str, Any] = _NO_PAIRS
    """The `_meta` of its sessions."""
    config_options: Mapping[str, str | bool] = _NO_OPTIONS
    """The config options of the session to set, by their ids."""
    auth_method: str = ""
    """The id of the authentication method to use; empty if the agent needs none."""
    auth_meta: Mapping[str, Any] = _NO_PAIRS
    """The `_meta` of that authentication."""
    login: str = ""
    """The command with which a person logs in."""
    preferred_options: tuple[str, ...] = ()
    """Ids of permission options that win among several of the same kind."""
    max_text: int = MAX_TEXT
    client_version: str = "0"
    """Our own version, for the handshake."""

    def variables(self) -> dict[str, str]:
        """The whole environment of the agent."""
        return {**clean(os.environ), **self.env}

    def command(self, cwd: str | None, family: Family) -> Command:
        """Return the command of its process, which runs in this folder if it has none itself."""
        return Command(
            self.argv,
            title=self.name,
            env=self.env,
            cwd=self.cwd or cwd,
            environment=clean(os.environ),
            max_line=MAX_LINE,
            stdin_grace_s=self.grace.stdin_s,
            term_grace_s=self.grace.term_s,
            family=family,
        )


class ProvidedServer(Struct, frozen=True, kw_only=True):
    """An MCP server for the agent, over HTTP where the agent supports that, else over stdio."""

    name: str
    url: str = ""
    headers: Mapping[str, str] = _NO_PAIRS
    argv: tuple[str, ...] = ()
    """The command of its stdio form, with an absolute path; empty if it has none."""
    env: Mapping[str, str] = _NO_PAIRS
    lists: Callable[[str], bool] | None = None
    """True for a tool that the agent's config lists, which needs no further permission."""

    def shown_to(self, has_http: bool) -> dict[str, Any] | None:
        """Return its entry of `mcpServers`; None if no form fits."""
        if self.url and has_http:
            headers = _pairs(self.headers)
            return {"type": "http", "name": self.name, "url": self.url, "headers": headers}
        if not self.argv:
            return None
        command, *args = self.argv
        return {"name": self.name, "command": command, "args": args, "env": _pairs(self.env)}


def entries_of(
    servers: Sequence[ProvidedServer], has_http: bool, record: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return the `mcpServers` of a session; a server in no supported form is only recorded."""
    entries = []
    for server in servers:
        entry = server.shown_to(has_http)
        if entry is None:
            record(f"{server.name} is not available to this agent: it needs HTTP")
        else:
            entries.append(entry)
    return entries


class AgentPrompt(Struct, frozen=True, kw_only=True):
    """One task for an agent."""

    text: str
    cwd: str
    """The absolute folder of the task, without links; all callbacks are confined to it."""
    task_id: str = ""
    """For people."""
    blocks: tuple[Mapping[str, Any], ...] = ()
    """Further content blocks, such as resource links."""
    session_id: str = ""
    """The session to continue."""
    servers: tuple[ProvidedServer, ...] = ()
    family: Family = msgspec.field(default_factory=Family)
    """All processes of this task."""
    on_session: Callable[[str], Awaitable[None]] | None = None
    """Awaited with the id of the session once it exists; empty if it cannot be continued later."""
    on_text: Callable[[str], None] | None = None
    """Called with the agent's text as it comes."""
    before_prompt: Callable[[], Awaitable[None]] | None = None
    """Awaited once the session exists, such as until the agent has listed its tools. It may raise
    TimeoutError: the prompt is sent all the same."""


class AgentQuestion(Struct, frozen=True, kw_only=True):
    """A question of an agent, in the form of an elicitation."""

    kind: str
    """`permission` or `elicitation`."""
    message: str
    schema: Mapping[str, Any]
    """The `requestedSchema`."""
    words: Mapping[str, str] = {}
    """The choices that `yes`, `always` and `no` mean, of a permission."""
    for_model: bool = False
    """True if a model may answer it; a person always may."""
    deadline_s: float
    """The engine answers it itself after this time."""


class AgentAnswer(Struct, frozen=True):
    """The answer to a question: `accept` with its content, `decline` or `cancel`."""

    action: str
    content: Mapping[str, Any] = {}


class DelegationPort(Protocol):
    """The owner of a delegation. An exception that it raises ends the turn."""

    async def progress(self, text: str) -> None:
        """Show what the agent is doing; only the latest text matters."""
        ...

    async def record(self, text: str) -> None:
        """Keep an event of the task."""
        ...

    async def ask(self, question: AgentQuestion) -> AgentAnswer | None:
        """Return the answer, or None if there is none; cancelled at the deadline."""
        ...


class TurnTimings(Struct, frozen=True, kw_only=True):
    """How long the parts of a turn took, in seconds; None for a part that did not happen."""

    start_s: float | None = None
    """Until the session was ready for the prompt."""
    first_update_s: float | None = None
    """From the prompt to the first update."""
    turn_s: float | None = None
    """From the prompt to the end of the turn."""
    is_warm: bool = False
    """True if the process was started before the turn."""


class TurnOutcome(Struct, frozen=True, kw_only=True):
    """The result of one turn of an agent."""

    text: str = ""
    stop_reason: str = ""
    """The agent's own, or `failed`, `idle_timeout`, `hard_timeout`; empty if it was interrupted."""
    is_error: bool = False
    error: str = ""
    """Why the turn failed; empty if it did not."""
    usage: AgentUsage = AgentUsage()
    session_id: str = ""
    can_resume: bool = False
    """True if the agent can continue the session later."""
    permissions: Mapping[str, int] = _NO_COUNTS
    """The number of permission requests by decision."""
    updates: Mapping[str, int] = _NO_COUNTS
    """The number of updates by kind, also of those that are unknown."""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """The last tool calls: title, kind and status."""
    files_reported: tuple[str, ...] = ()
    """The paths of files that the agent reported to have changed."""
    plan: tuple[Mapping[str, Any], ...] = ()
    """The last plan."""
    unknown_updates: tuple[bytes, ...] = ()
    """The last updates of unknown kinds, as received."""
    garbage: int = 0
    """The lines of the agent's output that were not messages."""
    timings: TurnTimings = TurnTimings()


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def launch_of(entry: AgentEntry) -> AgentLaunch:
    """Return how the configured agent is started, and what it may do.

    Its process runs in the folder of the task, for which `entry.cwd` is only a default.
    """
    preset = entry.known if entry.permissions.restricts else None
    return AgentLaunch(
        name=entry.id,
        argv=(entry.command, *entry.args),
        kind=entry.kind,
        env=entry.env,
        timeouts=entry.timeouts,
        permissions=entry.permissions,
        callbacks=entry.callbacks,
        mode=entry.mode,
        config_options=entry.options,
        auth_method=entry.auth_method,
        login=entry.login_command,
        session_meta={} if preset is None else preset.session_meta,
    )
