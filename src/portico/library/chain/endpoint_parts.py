"""The parts that an endpoint is made of: the source of catalogs, hubs, the link of tasks."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from portico.core.catalog.catalog import Catalog
from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.session import Session
from portico.core.model.types import Change, Handler, LinkedEndpoint
from portico.core.protocol.listen import ListenFilter


class Hub(Protocol):
    """The subscribers to changes of a catalog."""

    def attach(self, session: Session) -> None:
        """Send a legacy session its notifications until it is detached."""
        ...

    async def follow(
        self, wanted: ListenFilter, context: Context, first: bytes, sent: Callable[[], None]
    ) -> None:
        """Send a modern listener `first` and call `sent`, then send its notifications, until it
        leaves or we drain."""
        ...

    def publish(self, change: Change) -> None:
        """Notify all subscribers of a change."""
        ...


class TaskEntrance(Protocol):
    """The link of tasks as the chain sees it: in front of the links of the user (`TaskLink`)."""

    sees_every_call: bool
    """True if it must see every call; else only those whose client mentions tasks."""
    waits_for_catalog: bool
    """True if it decides about a call by the catalog of the client, which must be known."""
    behind: LinkedEndpoint | None
    """The endpoint behind it, once its chain is folded."""

    def __call__(self, next: Handler) -> Handler:
        """Return the link in front of the next handler."""
        ...

    async def visible_tasks(
        self, ids: Sequence[str], request: Request, context: Context
    ) -> list[str]:
        """Return those of the tasks that this client can follow; raises McpError."""
        ...

    def following(
        self,
        ids: Sequence[str],
        request: Request,
        context: Context,
        send: Callable[[bytes], Awaitable[None]],
    ) -> AbstractAsyncContextManager[None]:
        """Send the params of a notification for every state of these tasks."""
        ...


class CatalogSource(Protocol):
    """The source of the current catalog, which may differ from client to client."""

    def catalog(self, request: Request, context: Context) -> Catalog | None:
        """Return the catalog for this client; None until it is known."""
        ...

    async def ready(self, request: Request, context: Context) -> None:
        """Wait until the catalog is known; raises McpError if it cannot be fetched."""
        ...

    def hub(self, request: Request, context: Context) -> Hub:
        """Return the hub that publishes changes to this client."""
        ...

    def on_initialize(self, request: Request, context: Context) -> None:
        """Adapt the session of a legacy client that sends `initialize`."""
        ...

    def published(self) -> Sequence[tuple[Catalog, Hub]]:
        """Return the catalogs that are known now, each with the hub of its clients."""
        ...
