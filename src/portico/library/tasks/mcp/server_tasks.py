"""The tasks of a `Server`: in memory, or in a store that it was given."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.types import LinkedEndpoint, Provider
from portico.core.state.report import report
from portico.library.functions.prefixed import tools_of
from portico.library.functions.task_mode import NO_TASKS
from portico.library.tasks.mcp.task_host import TaskHost
from portico.library.tasks.mcp.task_link import TaskLink
from portico.library.tasks.mcp.task_policy import PromotionTerms, TaskPolicy
from portico.library.tasks.worker.worker import TaskWorker

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore


class ServerPolicy(TaskPolicy):
    """The tasks of one server, which all of its endpoints share."""

    names_servers = False
    shares_links = False

    def __init__(
        self,
        name: str,
        providers: Sequence[Provider],
        store: "TaskStore | str | os.PathLike[str] | None",
    ) -> None:
        """`store` may be a folder."""
        self._name = name
        self._providers = providers
        self._given = store
        self._worker: TaskWorker | None = None
        self._endpoints: list[TaskLink] = []

    @cached_property
    def host(self) -> TaskHost:
        """The worker of the tasks, created when there is a first one."""
        self._worker = TaskWorker(self._open, report=report)
        host = TaskHost(self._worker, f"server:{self._name}")
        host.calls.find = self._endpoint
        return host

    def _endpoint(self, at: str) -> LinkedEndpoint | None:
        """Return the endpoint of this number; the first one for tasks of another program."""
        number = int(at) if at.isdecimal() else 0
        found = self._endpoints[number : number + 1] or self._endpoints[:1]
        return found[0].behind if found else None

    def _open(self) -> "TaskStore":
        from portico.library.tasks.store.store import TaskStore, tasks_in_folder, tasks_in_memory

        if self._given is None:
            return tasks_in_memory()
        if isinstance(self._given, TaskStore):
            return self._given
        return tasks_in_folder(os.fspath(self._given))

    def link(self) -> TaskLink:
        """Return the link for one endpoint."""
        made = TaskLink(lambda: self.host, str(len(self._endpoints)), self)
        self._endpoints.append(made)
        self.update_required()
        return made

    def update_required(self) -> None:
        """Let the links see every call if a tool requires tasks, or stores them itself."""
        modes = [tool.mode for provider in self._providers for tool in tools_of(provider).values()]
        needed = any(mode is not None and mode.is_seen for mode in modes)
        for endpoint in self._endpoints:
            endpoint.sees_every_call = needed

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Continue the tasks of an earlier process; at the end, interrupt those that run."""
        if self._given is not None:
            self.host.worker.start()
        try:
            yield
        finally:
            for endpoint in self._endpoints:
                await endpoint.close()
            worker, self._worker = self._worker, None
            if worker is not None:
                self.__dict__.pop("host", None)
                await worker.close()

    # The policy of its endpoints.

    @property
    def is_declared(self) -> bool:
        """True if a tool supports tasks."""
        return any("tasks" in provider.offer().declared for provider in self._providers)

    def terms(self, request: Request) -> PromotionTerms:
        """Return how the called tool supports tasks."""
        for provider in self._providers:
            tool = tools_of(provider).get(request.name)
            if tool is not None:
                return PromotionTerms(tool.mode or NO_TASKS)
        return PromotionTerms()

    def server_of(self, context: Context) -> str:
        """Return an empty text: no other server answers."""
        return ""
