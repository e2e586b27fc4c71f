"""The tasks of a gateway: where they are kept, and how the tools of its members support them."""

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from portico.core.catalog.catalog import without_output_schema
from portico.core.catalog.exposed_names import SEPARATOR
from portico.core.catalog.merge import Merged
from portico.core.config.schema import Config
from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.task_control import CreatedTask
from portico.core.model.types import LinkedEndpoint
from portico.gateway.endpoints import metatool_definitions
from portico.gateway.endpoints.endpoints import IN_FOLDER
from portico.gateway.endpoints.exposure import Exposure, MemberRegistry
from portico.gateway.members.member import Member
from portico.library.functions.task_mode import NO_TASKS, TaskMode, TaskSupport
from portico.library.tasks.mcp.lazy_tasks import LazyEntrance
from portico.library.tasks.mcp.task_policy import PromotionTerms
from portico.upstream.connections.relay import FinishTask
from portico.upstream.connections.upstream import Upstream

if TYPE_CHECKING:
    from portico.library.tasks.mcp.following import RemoteTask, TaskRelay
    from portico.library.tasks.mcp.task_host import TaskHost
    from portico.library.tasks.mcp.task_link import TaskLink
    from portico.library.tasks.store.store import TaskStore
    from portico.library.tasks.worker.work import Runner
    from portico.library.tasks.worker.worker import TaskWorker

_UNKNOWN = TaskMode(TaskSupport.UNKNOWN)
_MAX_DAMAGED = 20


class TaskRegistry(MemberRegistry, Protocol):
    """The members in all folders."""

    @property
    def requires_tasks(self) -> bool:
        """True if a tool of a member runs only as a task, or stores tasks."""
        ...

    def at(self, at: str) -> MemberRegistry:
        """Return the members behind the endpoint of this name; raises McpError."""
        ...


class GatewayTasks:
    """The tasks of all endpoints of one gateway."""

    def __init__(self, worker: "Callable[[], TaskWorker]", scope: str) -> None:
        """`worker` is called when there is a first task."""
        self._make_worker = worker
        self._scope = scope
        self._endpoints: dict[str, LazyEntrance] = {}
        self._members: TaskRegistry | None = None
        self._more: dict[str, tuple[Runner, Callable[[], int]]] = {}
        self.find: Callable[[str], object] = lambda _: None
        """Creates the endpoint with this name, if it is not there."""

    @cached_property
    def host(self) -> "TaskHost":
        """The worker and its runners."""
        from portico.library.tasks.mcp.remote_task import FollowRunner
        from portico.library.tasks.mcp.task_host import TaskHost

        host = TaskHost(self._make_worker(), self._scope)
        host.calls.find = self._linked
        host.follow_remote(FollowRunner(self._relay, self._is_child))
        for kind, (runner, limit) in self._more.items():
            host.worker.register(kind, runner, limit)
        return host

    def add_kind(self, name: str, runner: "Runner", limit: Callable[[], int]) -> str:
        """Also run tasks of another kind, up to this many at once; return the kind."""
        kind = f"{name}@{self._scope}"
        self._more[kind] = (runner, limit)
        if self.is_open:
            self.host.worker.register(kind, runner, limit)
        return kind

    @property
    def is_open(self) -> bool:
        """True once there was a task."""
        return "host" in self.__dict__

    @property
    def running(self) -> int:
        """The number of tasks that run here."""
        return self.host.worker.running if self.is_open else 0

    @property
    def warnings(self) -> list[str]:
        """The tasks whose records are damaged, for the operator."""
        damaged = self.host.worker.damaged[:_MAX_DAMAGED] if self.is_open else []
        why = "its record is damaged; `portico tasks prune --damaged` removes it"
        return [f"task {id} cannot be read: {why}" for id in damaged]

    @property
    def is_busy(self) -> bool:
        """True while tasks run here, or wait to."""
        return self.is_open and self.host.worker.is_busy

    def serve(self, members: TaskRegistry, find: Callable[[str], object]) -> None:
        """Use these members; `find` makes sure that an endpoint exists."""
        self._members = members
        self.find = find

    def link(self, at: str, policy: "MergedPolicy | MemberPolicy") -> LazyEntrance:
        """Return the link of an endpoint."""
        made = self._endpoints[at] = LazyEntrance(
            lambda: self._endpoint(at, policy), waits_for_catalog=False
        )
        self.update_required()
        return made

    def _endpoint(self, at: str, policy: "MergedPolicy | MemberPolicy") -> "TaskLink":
        from portico.library.tasks.mcp.task_link import TaskLink

        return TaskLink(lambda: self.host, at, policy)

    def update_required(self) -> None:
        """Let the links see every call if a tool requires tasks, or if calls become tasks after a
        time."""
        members = self._members
        if members is None:
            return
        config = members.config
        by_time = config.gateway.sync_budget_s is not None or config.has_budgets
        needed = by_time or members.requires_tasks
        for endpoint in self._endpoints.values():
            endpoint.sees_every_call = needed

    def _linked(self, at: str) -> LinkedEndpoint | None:
        if at not in self._endpoints:
            self.find(at)
        endpoint = self._endpoints.get(at)
        return None if endpoint is None else endpoint.behind

    def finish_task(self, server: str, folder: str) -> FinishTask:
        """Return the function that waits for tasks of a member that were not requested, as tasks at
        its own endpoint."""
        at = f"server:{server}{IN_FOLDER}{folder}" if folder else f"server:{server}"

        async def finish(request: Request, context: Context, created: CreatedTask) -> Response:
            if at not in self._endpoints:
                self.find(at)
            return await self._endpoints[at].endpoint.finish(request, context, created)

        return finish

    def _upstream(self, server: str, at: str) -> Upstream | None:
        members: Mapping[str, Member] = {}
        if self._members is not None:
            members = self._members.at(at).members
        member = members.get(server)
        provider = None if member is None else member.provider
        return provider if isinstance(provider, Upstream) else None

    def _relay(self, remote: "RemoteTask") -> "TaskRelay | None":
        upstream = self._upstream(remote.server, remote.at)
        return None if upstream is None else upstream.relay

    def _is_child(self, server: str) -> bool:
        upstream = self._upstream(server, "")
        return upstream is not None and upstream.policy.is_process

    def forget(self, folder: str) -> list[LazyEntrance]:
        """Remove the endpoints of a folder until a task needs them again; return their links."""
        there = [at for at in self._endpoints if at.partition(IN_FOLDER)[2] == folder]
        return [self._endpoints.pop(at) for at in there]

    async def close(self, within_s: float) -> None:
        """Wait for running tasks, up to a time, then interrupt them."""
        for endpoint in self._endpoints.values():
            await endpoint.close()
        if self.is_open:
            await self.host.worker.close(within_s)


class MergedPolicy:
    """How the tools of all members support tasks, at an endpoint of several."""

    is_declared = True
    shares_links = True
    names_servers = True

    def __init__(
        self, registry: MemberRegistry, exposure: Exposure, *, may_answer_with_text: bool
    ) -> None:
        """`may_answer_with_text` if the endpoint has tools for tasks."""
        self._registry = registry
        self._exposure = exposure
        self._may_answer_with_text = may_answer_with_text
        self._known: tuple[Merged, Config, dict[str, PromotionTerms]] | None = None
        """By name, the terms of tools, as long as neither offers nor config change."""

    def terms(self, request: Request) -> PromotionTerms:
        """Return how the called tool supports tasks."""
        whole, config = self._exposure.whole, self._registry.config
        known = self._known
        if known is None or known[0] is not whole or known[1] is not config:
            known = self._known = (whole, config, {})
        found = known[2].get(request.name)
        if found is None:
            found = self._terms(request.name)
            if found.mode is not _UNKNOWN:
                known[2][request.name] = found
        return found

    def _terms(self, name: str) -> PromotionTerms:
        place = self._exposure.whole.tools.get(name)
        if place is None:
            is_own = name in metatool_definitions.RESERVED
            return PromotionTerms(NO_TASKS if is_own else _UNKNOWN)
        server, tool = place[0].server, place[1]
        member = self._registry.members.get(server)
        mode = None if member is None else member.task_mode(tool)
        budget_s = self._registry.config.budget_s(server)
        # Official clients refuse a text in place of a structured result, unless the tool is listed
        # without its output schema.
        raw = place[0].raw("tools", tool)
        may_answer_with_text = budget_s is not None or without_output_schema(raw) is raw
        return PromotionTerms(
            mode or NO_TASKS,
            budget_s,
            self._may_answer_with_text and may_answer_with_text,
            self._may_answer_with_text,
        )

    async def ready(self, request: Request) -> bool:
        """Wait until the tools of the server in a tool's name are known."""
        await self._registry.wait_for_catalog(request.name.partition(SEPARATOR)[0])
        return request.name in self._exposure.whole.tools

    def server_of(self, context: Context) -> str:
        """Return the member that the router chose."""
        return context.target[0] if context.target is not None else ""

    def called_server(self, request: Request) -> str:
        """Return the member that has the tool."""
        place = self._exposure.whole.tools.get(request.name)
        return "" if place is None else place[0].server


class MemberPolicy:
    """How the tools of one member support tasks, at its own endpoint."""

    shares_links = True
    names_servers = False

    def __init__(self, registry: MemberRegistry, member: Member) -> None:
        self._registry = registry
        self._member = member

    @property
    def is_declared(self) -> bool:
        """True if the member declares tasks: the endpoint shows its capabilities."""
        return self._member.has_tasks

    def terms(self, request: Request) -> PromotionTerms:
        """Return how the called tool supports tasks; all names here belong to the member, so that
        there is no tool by which a client without tasks gets a result later."""
        budget_s = self._registry.config.budget_s(self._member.name)
        if self._member.provider.offered() is None:
            return PromotionTerms(_UNKNOWN, budget_s)  # only the list of a single client is known
        mode = self._member.task_mode(request.name)
        if mode is None:
            mode = NO_TASKS if self._has(request.name) else _UNKNOWN
        return PromotionTerms(mode, budget_s)

    async def ready(self, request: Request) -> bool:
        """Wait until the tools of the member are known; False if the called one is not there."""
        await self._registry.wait_for_catalog(self._member.name)
        return self._member.provider.offered() is not None and self._has(request.name)

    def _has(self, tool: str) -> bool:
        catalog = self._member.catalog
        return catalog is not None and catalog.tool(tool) is not None

    def server_of(self, context: Context) -> str:
        """Return the member."""
        return self._member.name

    def called_server(self, request: Request) -> str:
        """Return the member."""
        return self._member.name


def file_store(folder: str, config: Config) -> "TaskStore":
    """Return the store in a folder, with the limits of a config."""
    from portico.library.tasks.store.record import TaskLimits
    from portico.library.tasks.store.store import tasks_in_folder

    kept = config.kept_tasks
    limits = TaskLimits(
        in_progress=config.tasks.in_progress, kept=kept.count, max_ttl_s=kept.days * 86400
    )
    return tasks_in_folder(folder, limits)


def has_store(folder: str) -> bool:
    """True if a task was ever stored in a folder."""
    return os.path.exists(os.path.join(folder, "tasks.db"))


def memory_store() -> "TaskStore":
    """Return a store that ends with this process."""
    from portico.library.tasks.store.store import tasks_in_memory

    return tasks_in_memory()
