"""The tools that delegate tasks to agents, as a server of their own."""

import time
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from portico.agents.delegation.agent_access import Delegator, FindParent
from portico.agents.delegation.agent_host import AgentHost
from portico.agents.delegation.delegate_definitions import delegate_definition, status_definition
from portico.agents.delegation.folders import folder_within, known_folder, task_folder
from portico.agents.delegation.prompt_context import check_size, context_blocks
from portico.agents.delegation.stored_delegation import StoredDelegation, note_in, stored_result
from portico.agents.delegation.waiting import begun_task, own_result, typed, unfinished, wait_for
from portico.agents.routing.availability import averages
from portico.agents.routing.routing import RoutingRequest
from portico.core.definitions.typed_arguments import typed_arguments
from portico.core.model.content import ToolResult
from portico.core.model.context import Context
from portico.core.model.errors import ToolError
from portico.core.model.wording import counted, plain
from portico.core.protocol.codec import encode
from portico.core.protocol.result_fields import with_notes
from portico.library.functions.task_mode import OWN
from portico.library.server import Server
from portico.library.tasks.mcp.task_call import DelegationControl
from portico.library.tasks.mcp.task_host import FindTasks, stored
from portico.library.tasks.mcp.task_tools import TaskTools
from portico.library.tasks.mcp.task_wire import agent_of
from portico.library.tasks.store.record import TaskRecord


class _Delegate(Struct, forbid_unknown_fields=True, kw_only=True):
    prompt: str
    task_type: str = ""
    agent_id: str = ""
    background: bool = False
    context: Any = None
    cwd: str | None = None
    timeout_s: float | None = None
    resume: str = ""


class DelegateTools:
    """`delegate_task` and `agent_status`."""

    def __init__(
        self,
        host: AgentHost,
        tasks: FindTasks,
        kind: str,
        find_parent: FindParent | None = None,
    ) -> None:
        """`kind` is that of delegated tasks."""
        self._host = host
        self._tasks = tasks
        self._kind = kind
        self._find_parent = find_parent or _no_parent
        self._task_tools = TaskTools(tasks)

    def server(self, tasks: str | None = None) -> Server:
        """Return a server with the tools, as the config is now; `tasks` is its store's folder."""
        server = Server("agents", title="Agents", tasks=tasks)
        config = self._host.config
        server.add_tool(delegate_definition(config), self.delegate, task=OWN)
        server.add_tool(status_definition(), self.agent_status)
        return server

    async def delegate(self, arguments: dict[str, Any], context: Context) -> ToolResult:
        """Store a delegation; wait for its result unless it runs in the background."""
        given = _arguments(arguments)
        known = context.state.get("task_id")
        if known is None:  # a later round of the same call continues with its task
            task = await self._submit(given, context)
            context.state["task_id"] = task.id
        else:
            found = await stored(self._tasks().worker.store.get(context.owner, known))
            if found is None:
                raise ToolError(f"task {known} is not known any more")
            task = found
        own = context.task_control if isinstance(context.task_control, DelegationControl) else None
        if own is not None:
            own.record = task
            if own.is_wanted:
                return unfinished(task, ["the task has started"])
        if given.background:
            task = await begun_task(self._tasks().worker.store, task)
            agent = f", agent {agent_of(task)}" if agent_of(task) else ""
            note = f"Task {task.id} is {task.word}{agent}; agent_status returns its result."
            return unfinished(task, [note])
        until = task.created_at + self._host.config.defaults.sync_budget_s
        host = self._tasks()
        left_s = until - time.time()
        waiting = wait_for(host.worker.store, task, context, left_s, is_new=known is None)
        if own is None:
            return await waiting
        host.waiting[task.id] = own
        return await own_result(own, waiting)

    async def _submit(self, given: _Delegate, context: Context) -> TaskRecord:
        parent = self._find_parent(context.principal)
        if parent is not None and parent.left <= 0:
            raise ToolError("this agent may not delegate further; do the work yourself")
        slots = self._host.config.defaults.max_concurrent
        if parent is not None and parent.depth + 1 >= slots:
            raise ToolError(
                f"this task cannot be delegated: the tasks that led to it hold all slots "
                f"(max_concurrent = {slots}), and wait for it; do the work yourself"
            )
        delegation, follows = await self._prepared(given, context, parent)
        await self._check(delegation)
        host, named = self._tasks(), delegation.agent_id
        worker = host.worker
        submitted = worker.submit(
            context.owner,
            self._kind,
            encode(delegation),
            place=host.place(f"agent {named}" if named else "the agents"),
            follows=follows,
        )
        task = await stored(submitted)
        if parent is not None and self._find_parent(context.principal) is not parent:
            await stored(worker.store.cancel(context.principal, task.id))
            raise ToolError("the task of this agent has ended; nothing is delegated")
        return task

    async def _prepared(
        self, given: _Delegate, context: Context, parent: Delegator | None
    ) -> tuple[StoredDelegation, str]:
        """Return the delegation, and the id of the task that it continues."""
        blocks = await context_blocks(given.context, context, reads=parent is None)
        check_size(given.prompt, blocks)
        delegation = StoredDelegation(
            task_type=given.task_type,
            prompt=given.prompt,
            agent_id=given.agent_id,
            cwd=given.cwd or "",
            blocks=blocks,
            timeout_s=given.timeout_s,
            call=context.task_control.call
            if isinstance(context.task_control, DelegationControl)
            else None,
        )
        if parent is not None:
            delegation = replace(
                delegation,
                depth=parent.depth + 1,
                left=parent.left - 1,
            )
        if given.resume:
            delegation = await self._continued(given, delegation, context)
        defaults = self._host.config.defaults
        if not delegation.task_type and delegation.agent_id:
            named = self._host.config.entries.get(delegation.agent_id)
            kind = self._types()[0] if named is None else named.default_type
            delegation = replace(delegation, task_type=kind)
        if not delegation.task_type:
            raise ToolError(f"task_type is missing; use one of {', '.join(self._types())}")
        wanted = given.cwd or delegation.cwd or None
        if parent is not None:
            folder = folder_within(parent.folder, wanted)
        elif wanted is None and self._has_own_folder(delegation):
            folder = await known_folder(context, defaults.roots)
            delegation = replace(delegation, is_default_cwd=True)
        else:
            folder = await task_folder(context, wanted, defaults.roots)
        return replace(delegation, cwd=folder), given.resume

    def _has_own_folder(self, delegation: StoredDelegation) -> bool:
        """True if an agent that may get this task has a folder of its own."""
        return any(
            entry.cwd is not None
            for entry in self._host.config.entries.values()
            if entry.enabled
            and entry.accepts(delegation.task_type)
            and delegation.agent_id in ("", entry.id)
        )

    async def _continued(
        self, given: _Delegate, delegation: StoredDelegation, context: Context
    ) -> StoredDelegation:
        """Return a delegation that continues a finished one; raises ToolError."""
        store = self._tasks().worker.store
        task = await stored(store.get(context.owner, given.resume))
        before = None if task is None else await stored(store.input(task))
        if task is None or before is None or task.kind != self._kind:
            raise ToolError(f"resume: there is no delegated task {given.resume[:80]!r}")
        if not task.is_finished:
            raise ToolError(f"resume: task {task.id} is {task.state}; wait for it, or cancel it")
        first = msgspec.json.decode(before, type=StoredDelegation)
        result = stored_result(await stored(store.result(task)))
        note = note_in(task.note)
        known = note if result is None else result  # a task that did not complete has only a note
        agent = given.agent_id or known.agent_id or first.agent_id
        return replace(
            delegation,
            task_type=given.task_type or first.task_type,
            agent_id=agent,
            cwd="" if first.is_default_cwd else first.cwd,
            # A session belongs to its agent.
            session_id=known.session_id if agent == known.agent_id else "",
            worktree=note.worktree,
        )

    async def _check(self, delegation: StoredDelegation) -> None:
        """Raise ToolError if no agent could ever get this task."""
        request = RoutingRequest(
            task_type=delegation.task_type,
            prompt=delegation.prompt,
            agent_id=delegation.agent_id,
        )
        routing = await self._host.route(request)
        if not routing.agent:
            raise ToolError(routing.error)

    def _types(self) -> list[str]:
        entries = self._host.config.entries.values()
        return sorted({word for entry in entries for word in entry.capabilities})

    async def agent_status(self, arguments: dict[str, Any], context: Context) -> ToolResult:
        """Return all agents, or the state of one task."""
        if arguments.get("task_id"):
            return typed(await self._task_tools.status(encode(arguments), context))
        if arguments.get("answer") is not None:
            raise ToolError("agent_status: `answer` needs the task_id of its question")
        agents = await self._host.status()
        notes = [] if agents else ["no agents are configured"]
        text = "\n".join([*map(_agent_line, agents), *notes])
        return ToolResult(content=text, structured=with_notes({"agents": agents}, notes))


def _arguments(arguments: dict[str, Any]) -> _Delegate:
    try:
        given = typed_arguments(arguments, _Delegate)
    except ValueError as error:
        raise ToolError(f"delegate_task: {error}") from None
    if not given.prompt.strip():
        raise ToolError("delegate_task: `prompt` is empty; describe the whole task")
    if given.timeout_s is not None and not given.timeout_s > 0:
        raise ToolError("delegate_task: timeout_s must be more than 0")
    return given


def _agent_line(agent: dict[str, Any]) -> str:
    quota = "; ".join(
        f"{plain(one['left'])} left of {plain(one['allowed'])}" for one in agent["quota"]
    )
    parts = [
        f"{agent['id']}: {agent['state']}",
        ", ".join(agent["capabilities"]),
        f"{counted(agent['running'], 'task')} running",
        quota,
        agent["reason"],
        "" if agent["supervised"] else "unsupervised",
        *averages(agent["totals"]),
    ]
    return "; ".join(part for part in parts if part)


def _no_parent(principal: str) -> Delegator | None:
    return None
