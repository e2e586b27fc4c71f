"""The link and the tools for tasks, made for the first one: their modules are slow to import."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Change, Handler, LinkedEndpoint
from portico.library.tasks.mcp.task_tool_definitions import TASK_TOOL_NAMES

if TYPE_CHECKING:
    from portico.library.tasks.mcp.task_host import FindTasks
    from portico.library.tasks.mcp.task_link import TaskLink
    from portico.library.tasks.mcp.task_tools import TaskTools


class LazyEntrance:
    """A `TaskLink` that is made when a call or a request is about tasks."""

    def __init__(self, make: "Callable[[], TaskLink]", *, waits_for_catalog: bool = True) -> None:
        """`waits_for_catalog` unless its policy waits for the tools of a server itself."""
        self._make = make
        self.waits_for_catalog = waits_for_catalog
        self._next: Handler | None = None
        self.sees_every_call = False
        """True if calls may become tasks that their clients do not mention."""
        self.behind: LinkedEndpoint | None = None
        """The endpoint behind the link, which makes the calls of tasks."""

    def __call__(self, next: Handler) -> Handler:
        """Return the link in front of the next handler."""
        self._next = next
        self.__dict__.pop("_handler", None)  # a chain may be folded again

        def handle(request: Request, context: Context) -> Answer:
            return self._handler(request, context)

        return handle

    @cached_property
    def endpoint(self) -> "TaskLink":
        """The link itself."""
        return self._make()

    @cached_property
    def _handler(self) -> Handler:
        assert self._next is not None
        return self.endpoint(self._next)

    async def visible_tasks(
        self, ids: Sequence[str], request: Request, context: Context
    ) -> list[str]:
        """Return those of the tasks that a listener can follow; raises McpError."""
        return await self.endpoint.visible_tasks(ids, request, context)

    @asynccontextmanager
    async def following(
        self,
        ids: Sequence[str],
        request: Request,
        context: Context,
        send: Callable[[bytes], Awaitable[None]],
    ) -> AsyncGenerator[None, None]:
        """Send a listener the params of a notification for every state of these tasks."""
        async with self.endpoint.following(ids, request, context, send):
            yield

    async def close(self) -> None:
        """Stop sending notifications."""
        if "endpoint" in self.__dict__:
            await self.endpoint.close()


class LazyTools:
    """A provider that passes calls of the tools for tasks to `TaskTools`; a gateway lists them."""

    name = "task-tools"

    def __init__(self, host: "FindTasks", at: str) -> None:
        """`at` is the endpoint of the tools."""
        self._host = host
        self._at = at

    def offer(self) -> Offer:
        """Return nothing: the tools are listed where tasks can exist."""
        return Offer()

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Do nothing: the tools do not change."""

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer one of the tools."""
        if request.name not in TASK_TOOL_NAMES:
            return None
        return self._tools.provide(request, context)

    @cached_property
    def _tools(self) -> "TaskTools":
        from portico.library.tasks.mcp.task_tools import TaskTools

        return TaskTools(self._host, self._at)
