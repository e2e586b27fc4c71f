"""A delegation as a task keeps it: its input, and its result."""

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from portico.agents.turns.delegation import TurnOutcome
from portico.core.model.wording import counted
from portico.core.protocol.codec import encode
from portico.library.tasks.mcp.task_call import StoredCall
from portico.library.tasks.mcp.task_wire import StoredPayload, result_of

_ALLOWED = ("allowed", "answered_allow")
"""Decisions about permissions with which an agent can go ahead."""
_OPTIONAL = ("changes", "session_id", "cwd", "skipped", "timings")


class StoredDelegation(Struct, kw_only=True, omit_defaults=True):
    """The input of a delegated task."""

    task_type: str
    prompt: str
    agent_id: str = ""
    """The agent that the client requires; empty for any."""
    cwd: str
    """The folder of the task; empty if only its agent has one."""
    is_default_cwd: bool = False
    """True if the client named no folder: that of the agent's config comes first."""
    blocks: tuple[Mapping[str, Any], ...] = ()
    timeout_s: float | None = None
    session_id: str = ""
    """The agent's session to continue."""
    depth: int = 0
    """The number of delegations that led to this one."""
    left: int | None = None
    """How many further delegations its requester leaves; None for any number."""
    worktree: str = ""
    """The id of the worktree in which an earlier task worked that this one continues."""
    call: StoredCall | None = None
    """The call that stored it, whose links its result passes; None in those of an older Portico."""


def call_of(input: bytes) -> StoredCall | None:
    """Return the call that stored a delegation."""
    return msgspec.json.decode(input, type=StoredDelegation).call


class AgentNote(Struct, omit_defaults=True):
    """The note of a running delegation: its agent and session, to continue after a crash."""

    agent_id: str = ""
    session_id: str = ""
    worktree: str = ""
    """The id of the worktree in which it works."""


def note_in(text: str) -> AgentNote:
    """Return the note of a task; an empty one if it has none."""
    return msgspec.json.decode(text, type=AgentNote) if text else AgentNote()


def note_of(text: str, agent: str) -> AgentNote:
    """Return the note of a task that this agent gets; a session belongs to its agent."""
    note = note_in(text)
    return note if note.agent_id == agent else AgentNote(agent, worktree=note.worktree)


def note_text(note: AgentNote) -> str:
    """Return a note as a task keeps it."""
    return encode(note).decode()


class FolderChanges(Struct, frozen=True):
    """The files that a task has changed."""

    files: tuple[str, ...]
    about: str
    """Where they are, or how they are known."""


def reported_changes(turn: TurnOutcome, cwd: str) -> FolderChanges | None:
    """Return the files that an agent reported to have changed; None if it reported none."""
    if not turn.files_reported:
        return None
    files = (os.path.normpath(os.path.join(cwd, path)) for path in turn.files_reported)
    inside = os.path.join(cwd, "")
    shown = tuple(sorted({path.removeprefix(inside) for path in files}))
    return FolderChanges(shown, "reported by the agent; its commands may have changed others")


class DelegationResult(Struct, kw_only=True):
    """The structured result of a delegation."""

    task_id: str
    agent_id: str = ""
    status: str = "completed"
    result: str = ""
    stop_reason: str = ""
    usage: dict[str, Any] = {}
    files_changed: tuple[str, ...] | None = None
    changes: str = ""
    """Where the changed files are, or how they are known."""
    session_id: str = ""
    cwd: str = ""
    skipped: tuple[str, ...] = ()
    """Why other agents did not get it."""
    timings: dict[str, float | bool] = {}

    def payload(self, *, is_error: bool) -> bytes:
        """Return it as the payload of a task."""
        return encode(StoredPayload(result=msgspec.Raw(encode(self.tool_result(is_error)))))

    def tool_result(self, is_error: bool) -> dict[str, Any]:
        """Return it as the result of a tool."""
        found: dict[str, Any] = {
            "content": [{"type": "text", "text": self.result}],
            "structuredContent": {
                key: value
                for key, value in msgspec.to_builtins(self).items()
                if value is not None and (key not in _OPTIONAL or value not in ("", (), [], {}))
            },
        }
        return {**found, "isError": True} if is_error else found


class _Stored(Struct):
    structuredContent: DelegationResult | None = None  # noqa: N815  (a field of the wire)


def stored_result(payload: bytes | None) -> DelegationResult | None:
    """Return the structured result in the payload of a delegated task; None for another task."""
    try:
        return msgspec.json.decode(result_of(payload) or b"{}", type=_Stored).structuredContent
    except msgspec.DecodeError:
        return None


def result_from(
    task_id: str, agent_id: str, cwd: str, turn: TurnOutcome, skipped: tuple[str, ...]
) -> DelegationResult:
    """Return the result of a turn."""
    timings = {
        name: value if isinstance(value, bool) else round(value, 3)
        for name, value in msgspec.to_builtins(turn.timings).items()
        if value is not None and value is not False
    }
    text = turn.text or turn.error or _without_text(turn)
    if turn.is_error and turn.error and turn.text:
        text = f"{turn.text}\n\n{turn.error}"
    return DelegationResult(
        task_id=task_id,
        agent_id=agent_id,
        status="failed" if turn.is_error else "completed",
        result=text,
        stop_reason=turn.stop_reason,
        usage={k: v for k, v in msgspec.to_builtins(turn.usage).items() if v not in (None, "")},
        session_id=turn.session_id if turn.can_resume else "",
        cwd=cwd,
        skipped=skipped,
        timings=timings,
    )


def _without_text(turn: TurnOutcome) -> str:
    """Explain a turn that ended without a word: often a permission was rejected."""
    rejected = sum(
        count for decision, count in turn.permissions.items() if decision not in _ALLOWED
    )
    why = f" after {counted(rejected, 'rejected permission')}" if rejected else ""
    return f"the agent ended its turn ({turn.stop_reason}) without text{why}"
