"""How the tools of an endpoint support tasks, and which clients do."""

from typing import NamedTuple, Protocol

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.protocol.codec import may_mention
from portico.core.protocol.eras import members
from portico.core.protocol.tasks import EXTENSION, TASKS
from portico.library.functions.task_mode import NO_TASKS, TaskMode


class PromotionTerms(NamedTuple):
    """How calls of one tool become tasks."""

    mode: TaskMode = NO_TASKS
    budget_s: float | None = None
    """The time after which a call becomes a task by itself; None for never."""
    may_answer_with_text: bool = False
    """True if a client without tasks can get a text instead of the result."""
    may_answer_executed_with_text: bool = False
    """The same for a call through `execute_tool`."""


class TaskPolicy(Protocol):
    """How the tools of one endpoint support tasks."""

    @property
    def is_declared(self) -> bool:
        """True if the endpoint declares tasks to clients."""
        ...

    @property
    def shares_links(self) -> bool:
        """True if all endpoints of the application are behind the same links."""
        return True

    def terms(self, request: Request) -> PromotionTerms:
        """Return how calls of the called tool become tasks."""
        ...

    async def ready(self, request: Request) -> bool:
        """Wait until the called tool is known; False if there is none."""
        return True

    @property
    def names_servers(self) -> bool:
        """True if questions name their server."""
        ...

    def server_of(self, context: Context) -> str:
        """Return the server that answered a call."""
        ...

    def called_server(self, request: Request) -> str:
        """Return the server that a call is for; empty if all tools here share one limit."""
        return ""


def declares_tasks(request: Request) -> bool:
    """True if a modern request declares the extension for tasks."""
    raw = request.meta.client_capabilities
    if not may_mention(raw, TASKS):
        return False
    return EXTENSION in members(members(raw).get("extensions", b""))
