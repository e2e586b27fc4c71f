"""A link for tasks that is made when there is a first one: its modules are slow to import."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.types import Answer, Handler, LinkedEndpoint

if TYPE_CHECKING:
    from portico.library.tasks.mcp.task_link import TaskLink


class LazyTaskLink:
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
