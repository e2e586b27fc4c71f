"""Runs delegated tasks: one turn of one agent each."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from portico.agents.delegation.agent_host import AgentHost
from portico.agents.delegation.agent_text import AgentText
from portico.agents.delegation.stored_delegation import (
    AgentNote,
    DelegationResult,
    StoredDelegation,
    note_in,
    note_of,
    note_text,
    reported_changes,
    result_from,
)
from portico.agents.routing.routing import Routing, RoutingRequest
from portico.agents.turns.delegation import (
    AgentAnswer,
    AgentPrompt,
    AgentQuestion,
    TurnOutcome,
    launch_of,
)
from portico.agents.turns.run_turn import Turn, turn_of
from portico.agents.turns.turn import AcpTurn
from portico.agents.worktrees.worktree_record import WorktreeError
from portico.core.config.agents_schema import AgentEntry
from portico.core.model.errors import TargetError
from portico.core.model.methods import ELICIT
from portico.core.protocol.codec import encode
from portico.core.state.background import Background
from portico.library.tasks.mcp.answer_choices import ANSWERS
from portico.library.tasks.mcp.task_answers import FOR_MODEL
from portico.library.tasks.store.record import COMPLETED, STARTING
from portico.library.tasks.worker.work import ORPHANED, RunOutcome, Work
from portico.upstream.process.family import Family

if TYPE_CHECKING:
    from portico.agents.delegation.agent_access import AgentAccess, TaskGrant
    from portico.agents.delegation.worktree_folder import WorktreeFolder, WorktreeFolders

_MAX_AGENTS = 8
"""Agents that are tried for one task, if they do not start."""
_SHOWN_AFTER_S = 0.1
_OF_TASK = ("unsupported", "removed", "folder")
"""Kinds of failed starts of which another task need not be afraid."""
_OF_SESSION = ("refused", "protocol")
"""Kinds of failures that may be those of the session to continue."""


class WorkPort:
    """The port of a turn to its task."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def progress(self, text: str) -> None:
        """Show what the agent is doing, unless it is done in a moment."""
        await self._work.progress(text, after_s=_SHOWN_AFTER_S)

    async def record(self, text: str) -> None:
        """Keep an event of the task."""
        await self._work.record(text)

    async def ask(self, question: AgentQuestion) -> AgentAnswer | None:
        """Park a question in the task, and wait for its answer."""
        params = {"mode": "form", "message": question.message, "requestedSchema": question.schema}
        meta: dict[str, Any] = {FOR_MODEL: True} if question.for_model else {}
        if question.words:
            meta[ANSWERS] = dict(question.words)
        if meta:
            params["_meta"] = meta
        (answer,) = await self._work.ask([encode({"method": ELICIT, "params": params})])
        try:
            return msgspec.json.decode(answer, type=AgentAnswer)
        except msgspec.DecodeError:  # an answer that is not valid allows nothing
            return AgentAnswer("decline")


class _Attempt:
    """One agent that is tried for a task."""

    def __init__(self, routing: Routing, skipped: Mapping[str, str]) -> None:
        self.routing = routing
        self.skipped = tuple(skipped.values())
        self.turn: Turn | None = None
        """The turn, once the agent is being started."""

    @property
    def is_prompted(self) -> bool:
        """True if the prompt was sent."""
        return self.turn is not None and self.turn.outcome().timings.start_s is not None


class DelegateRunner:
    """Runs the tasks that were delegated to agents."""

    is_repeatable = False
    begins_itself = True

    def __init__(
        self,
        host: AgentHost,
        access: "AgentAccess | None" = None,
        worktrees: "WorktreeFolders | None" = None,
        text: "Callable[[StoredDelegation, str], AgentText | None] | None" = None,
    ) -> None:
        """Without `access`, agents get no tools of Portico's; without `worktrees`, they work in the
        user's own folder. `text` returns what shows the text of a task's agent as it comes, if
        that is allowed."""
        self._host = host
        self._text = text
        self._access = access
        self._worktrees = worktrees

    async def run(self, work: Work) -> RunOutcome:
        """Choose an agent, and run one turn. An agent that does not start is skipped in favour of
        the next, unless the task names it."""
        stored = msgspec.json.decode(work.input, type=StoredDelegation)
        if await work.is_orphan():
            return ORPHANED
        stored = _resumed(stored, work.task.note)
        if why := await asyncio.to_thread(_folder_problem, stored.cwd):
            return _refused(work, Routing(), why, ())
        request = RoutingRequest(
            task_type=stored.task_type, prompt=stored.prompt, agent_id=stored.agent_id
        )
        skipped: dict[str, str] = {}
        tried: dict[str, str] = {}
        for _ in range(_MAX_AGENTS):
            request = replace(request, tried=dict(tried))
            async with self._host.admitted(request, work.progress) as routing:
                for one in routing.skipped:
                    skipped.setdefault(one.agent, one.reason)
                if not routing.agent:
                    break
                attempt = _Attempt(routing, skipped)
                try:
                    return await self._turn(work, stored, attempt)
                except WorktreeError as error:
                    tried[routing.agent] = str(error)
                    break
                except TargetError as error:  # nothing has been done
                    tried[routing.agent] = skipped[routing.agent] = str(error)
                    if _is_of_agent(error, stored):
                        self._host.failed(routing.agent, str(error))
                    if stored.agent_id:
                        break
                finally:
                    if not attempt.is_prompted:
                        await asyncio.shield(self._host.refund(routing))
        if not routing.agent:
            return _refused(work, routing, routing.error, tuple(skipped.values()))
        await self._host.finished(work.id, routing.agent, "failed", TurnOutcome(), _queue_s(work))
        return _refused(work, routing, tried[routing.agent], tuple(skipped.values()))

    async def _turn(self, work: Work, stored: StoredDelegation, attempt: _Attempt) -> RunOutcome:
        """Run one turn of the chosen agent; raises TargetError or WorktreeError if it could not
        begin."""
        routing = attempt.routing
        entry = self._host.config.entries.get(routing.agent)
        if entry is None:
            raise TargetError(f"{routing.agent} was removed from the config", kind="removed")
        queue_s, choice = _queue_s(work), f"{entry.id}: {routing.reason}"
        note = note_of(work.task.note, entry.id)
        if work.task.state is STARTING:
            await work.begin(choice, note_text(note))
        else:
            await work.record(choice)
            await work.annotate(note_text(note))
        stored = _in_folder(stored, entry)
        if why := await asyncio.to_thread(_folder_problem, stored.cwd):  # it may have waited long
            raise WorktreeError(why)
        async with AsyncExitStack() as stack:
            folder = await self._prepared(work, entry, stored)
            cwd = stored.cwd
            if folder is not None:
                stack.push_async_callback(folder.leave)
                cwd, note = folder.path, replace(note, worktree=folder.id)
            access = await self._granted(work, entry, stored, cwd)
            if access is not None:
                stack.push_async_callback(access.end)
            text = None if self._text is None else self._text(stored, work.id)
            if text is not None:
                stack.enter_context(text)
            launch = launch_of(entry)
            if stored.timeout_s is not None:
                hard = min(stored.timeout_s, launch.timeouts.hard)
                launch = replace(launch, timeouts=replace(launch.timeouts, hard=hard))
            # A worktree is new for each task: no process can be ready in it.
            warm = self._host.take_warm(entry, cwd) if folder is None else None
            family = Family() if warm is None else warm.family
            if access is not None:
                access.bind(family)
            server = None if access is None else access.server
            prompt = AgentPrompt(
                text=stored.prompt,
                cwd=cwd,
                task_id=work.id,
                blocks=stored.blocks,
                session_id=stored.session_id,
                servers=() if server is None else (server,),
                family=family,
                before_prompt=None if access is None or server is None else access.until_listed,
                on_session=partial(_keep_session, work, note),
                on_text=None if text is None else text.add,
            )
            ending = Background()
            turn = attempt.turn = turn_of(launch, prompt, WorkPort(work), warm, ending)
            if access is not None and isinstance(turn, AcpTurn):
                access.questions.pause = turn.paused
            try:
                outcome = await turn.run()
            except asyncio.CancelledError:
                state = "cancelled" if work.is_cancelled else "interrupted"
                ended = self._host.finished(work.id, entry.id, state, turn.outcome(), queue_s)
                await asyncio.shield(ended)
                raise
            self._host.keep_slot(entry.id, ending)
            if folder is None:
                changes = reported_changes(outcome, cwd)
            else:
                await ending.wait()  # the agent may still write
                changes = await folder.changes()
        state = "failed" if outcome.is_error else "completed"
        await self._host.finished(work.id, entry.id, state, outcome, queue_s)
        result = result_from(work.id, entry.id, cwd, outcome, attempt.skipped)
        if changes is not None:
            result = replace(result, files_changed=changes.files, changes=changes.about)
        return _outcome(result, is_error=outcome.is_error)

    async def _prepared(
        self, work: Work, entry: AgentEntry, stored: StoredDelegation
    ) -> "WorktreeFolder | None":
        worktrees = self._worktrees
        return None if worktrees is None else await worktrees.prepare(work, entry, stored)

    async def _granted(
        self, work: Work, entry: AgentEntry, stored: StoredDelegation, cwd: str
    ) -> "TaskGrant | None":
        access = self._access
        return None if access is None else await access.grant(work, entry, stored, cwd)


async def _keep_session(work: Work, note: AgentNote, id: str) -> None:
    """Keep the id of the session, which may be continued later."""
    if id != note.session_id:
        await work.annotate(note_text(replace(note, session_id=id)))


def _queue_s(work: Work) -> float:
    """How long a task has waited for its agent."""
    return max(0.0, time.time() - work.task.created_at)


def _is_of_agent(error: TargetError, stored: StoredDelegation) -> bool:
    """True if an agent would fail to start other tasks, too."""
    if error.kind in _OF_TASK:
        return False
    return not (stored.session_id and error.kind in _OF_SESSION)


def _folder_problem(cwd: str) -> str:
    """Return why a task cannot begin in its folder, which was resolved when it was delegated: an
    agent may have put a link in its place since then."""
    if not cwd:
        return ""
    if not os.path.isdir(cwd):
        return f"the folder of the task does not exist any more: {cwd}"
    return "" if os.path.realpath(cwd) == cwd else f"the folder of the task is a link now: {cwd}"


def _in_folder(stored: StoredDelegation, entry: AgentEntry) -> StoredDelegation:
    """Return a delegation in the folder that its agent has for tasks without one."""
    if not stored.cwd and not entry.cwd:
        raise TargetError(f"{entry.id} has no folder to work in: give `cwd`", kind="folder")
    if entry.cwd and (not stored.cwd or stored.is_default_cwd):
        if not os.path.isdir(entry.cwd):
            raise TargetError(f"{entry.id}: its folder {entry.cwd} does not exist", kind="start")
        return replace(stored, cwd=os.path.realpath(entry.cwd))
    return stored


def _resumed(stored: StoredDelegation, note: str) -> StoredDelegation:
    """Return a delegation that resumes an interrupted one, in the same session if there was one."""
    known = note_in(note)
    if stored.session_id or not known.session_id:
        return stored
    return replace(stored, agent_id=known.agent_id, session_id=known.session_id)


def _refused(work: Work, routing: Routing, why: str, skipped: tuple[str, ...]) -> RunOutcome:
    result = DelegationResult(
        task_id=work.id, agent_id=routing.agent, status="failed", result=why, skipped=skipped
    )
    return _outcome(result, is_error=True)


def _outcome(result: DelegationResult, *, is_error: bool) -> RunOutcome:
    usage = {
        name: float(value) for name, value in result.usage.items() if isinstance(value, int | float)
    }
    message = result.result[:200] if is_error else result.stop_reason
    return RunOutcome(COMPLETED, result.payload(is_error=is_error), message, usage, is_error)
