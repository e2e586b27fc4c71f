"""The tasks of a wrapped server: for a single client of its era, its own; otherwise ours."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from portico.core.catalog.catalog import Catalog
from portico.core.catalog.namespaced import can_create_tasks
from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.task_control import CreatedTask
from portico.core.protocol.tasks import support_of
from portico.core.state.report import report
from portico.library.functions.task_mode import TaskMode, TaskSupport
from portico.library.tasks.mcp.lazy_tasks import LazyEntrance
from portico.library.tasks.mcp.task_policy import PromotionTerms, TaskPolicy
from portico.upstream.connections.upstream import Upstream

if TYPE_CHECKING:
    from portico.library.tasks.mcp.task_host import TaskHost
    from portico.library.tasks.mcp.task_link import TaskLink
    from portico.library.tasks.store.record import TaskRecord
    from portico.library.tasks.store.store import TaskStore
    from portico.library.tasks.worker.worker import TaskWorker

_REMOTE = PromotionTerms(TaskMode(TaskSupport.REMOTE))
_REQUIRED = PromotionTerms(TaskMode(TaskSupport.REMOTE, is_required=True))


class WrapPolicy(TaskPolicy):
    """The tasks of one upstream, and the link in front of it."""

    names_servers = False

    def __init__(
        self,
        upstream: Upstream,
        scope: str,
        log: Callable[[str], None] | None = None,
        *,
        alone: bool,
    ) -> None:
        """Only processes with the same `scope` follow each other's tasks. `log` gets a line for
        each task created and finished. A client that is `alone` with the server of its era gets the
        server's own ids; several clients get ids that none of them can guess."""
        self._upstream = upstream
        self._alone = alone
        self._scope = scope
        self._log = log
        self._worker: TaskWorker | None = None
        self._required: frozenset[str] = frozenset()
        self.link = LazyEntrance(self._endpoint)
        upstream.finish_tasks(self._finish)
        upstream.watch(lambda change: self._look() if not change.kind else None)
        self._look()

    def _endpoint(self) -> "TaskLink":
        from portico.library.tasks.mcp.task_link import TaskLink

        relay = self._upstream.relay if self._alone else None
        return TaskLink(lambda: self.host, "", self, forwards=relay, translates=self._translates)

    async def _finish(self, request: Request, context: Context, created: CreatedTask) -> Response:
        return await self.link.endpoint.finish(request, context, created)

    @cached_property
    def host(self) -> "TaskHost":
        """The follower of the server's tasks, created when there is a first one."""
        from portico.library.tasks.mcp.remote_task import FollowRunner
        from portico.library.tasks.mcp.task_host import TaskHost
        from portico.library.tasks.worker.worker import TaskWorker

        self._worker = TaskWorker(
            _open_store,
            report=report,
            created=lambda task: self._record(task, "created"),
            finished=lambda task: self._record(task, task.word),
        )
        host = TaskHost(self._worker, self._scope)
        host.calls.find = lambda _: self.link.behind
        upstream = self._upstream
        host.follow_remote(
            FollowRunner(lambda _: upstream.relay, lambda _: upstream.policy.is_process)
        )
        return host

    def _record(self, task: "TaskRecord", state: str) -> None:
        if self._log is not None:
            self._log(f"task {task.id} ({task.kind.partition('@')[0]}) {state}")

    def _look(self) -> None:
        """See every call if a tool requires tasks of clients that cannot know."""
        self._required = frozenset().union(*map(_required_tools, self._catalogs()))
        self.link.sees_every_call = bool(self._required)

    def _catalogs(self) -> list[Catalog]:
        """Return all that is known: a client that accepts questions may have its own."""
        return [catalog for catalog, _ in self._upstream.published()]

    def _translates(self, request: Request) -> bool:
        """True if the server is only of the other era: all tasks of this client are ours."""
        modern = request.version.modern
        return all(catalog.offer.version.modern != modern for catalog in self._catalogs())

    async def close(self, within_s: float) -> None:
        """Leave the tasks of a server at a URL to the next process that wraps it; wait for those of
        a child, which ends with this process, up to a time."""
        await self.link.close()
        if self._worker is not None:
            await self._worker.close(within_s)

    # The policy of its link.

    @property
    def is_declared(self) -> bool:
        """True if the server declares tasks, in its era."""
        return any(can_create_tasks(catalog.offer) for catalog in self._catalogs())

    def terms(self, request: Request) -> PromotionTerms:
        """Return that the server decides. A legacy server cannot tell a modern client that a tool
        requires a task, so we do."""
        is_required = request.version.modern and request.name in self._required
        return _REQUIRED if is_required else _REMOTE

    def server_of(self, context: Context) -> str:
        """Return the server's name."""
        return self._upstream.name

    def called_server(self, request: Request) -> str:
        """Return the server's name."""
        return self._upstream.name


def _required_tools(catalog: Catalog) -> frozenset[str]:
    if catalog.offer.version.modern or not can_create_tasks(catalog.offer):
        return frozenset()
    tools = catalog.offer.listed("tools")
    pairs = zip(tools.keys, tools.items, strict=True)
    return frozenset(name for name, raw in pairs if support_of(raw) == "required")


def _open_store() -> "TaskStore":
    """Return the store that gateways use too: each removes only tasks of its own scope. Where it
    cannot be written, tasks last as long as this process."""
    from portico.core.config.paths import state_folder
    from portico.core.state.files import is_writable
    from portico.library.tasks.store.store import tasks_in_folder, tasks_in_memory

    folder = state_folder()
    if is_writable(folder):
        return tasks_in_folder(folder)
    report(f"tasks end with this process: {folder} is not writable")
    return tasks_in_memory()
