"""A call as a task: the task in which a handler runs, and the ways to become one."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from portico.core.model.context import Context
    from portico.core.model.message import Request, Response


class RunningTask(Protocol):
    """The task in which a handler runs; its client may have left, and queries its state later."""

    @property
    def id(self) -> str:
        """The id that clients use."""
        ...

    @property
    def is_cancelled(self) -> bool:
        """True once its client has requested its end."""
        ...

    async def message(self, text: str) -> None:
        """Show clients this text as the task's status."""
        ...

    async def supplied_result(self) -> Any:
        """Wait for the result that another part of the program supplies with
        `server.supply_result`."""
        ...


class TaskControl(Protocol):
    """The way of a call to become a task, and its task once it is one."""

    run_of: str
    """The id of the task whose stored call is made; empty for the call of a client."""
    is_submission: bool
    """True if the call of a client was stored, and is made later."""
    performs: bool
    """True if `perform` must be called behind all links."""
    is_replay: bool
    """True if a result that arrived later passes the links: no client waits for it."""
    link_answers: dict[str, dict[str, Any]] | None
    """By the place of a link, the answers that it got; None if nothing arrives later."""

    @property
    def task(self) -> RunningTask | None:
        """The task, if there is one by now."""
        ...

    async def begin(self) -> RunningTask | None:
        """Make the call a task; None if its client cannot have one."""
        ...

    def perform(
        self,
        next: "Callable[[Request, Context], Response | Awaitable[Response]]",
        request: "Request",
        context: "Context",
    ) -> "Response | Awaitable[Response]":
        """Return what the links get as the answer to the call: the result itself, also where a
        server answers with a task."""
        ...


class TaskRequest(Struct, frozen=True):
    """The right of a server to answer a call with a task of its own."""

    ttl_ms: float | None = None
    """How long the client requires it to be kept; None for no requirement."""


class CreatedTask(Struct):
    """The task of its own with which a server answered a call."""

    id: str
    modern: bool
    """True if the server is of the modern era."""
    ttl_s: float | None = None
    tell: Callable[[bytes], None] | None = None
    """Receives the params of its progress; None passes them to the client's session."""
