"""The tools for tasks, imported with the first call: most gateways never get one."""

from functools import cached_property
from typing import TYPE_CHECKING

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Change
from portico.library.tasks.mcp.task_tool_definitions import TASK_TOOL_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from portico.library.tasks.mcp.task_host import FindTasks
    from portico.library.tasks.mcp.task_tools import TaskTools


class LazyTaskTools:
    """A provider that passes calls of the tools for tasks to `TaskTools`; a gateway lists them."""

    name = "task-tools"

    def __init__(self, host: "FindTasks", at: str) -> None:
        """`at` is the endpoint of the tools."""
        self._host = host
        self._at = at

    def offer(self) -> Offer:
        """Return nothing: the tools are listed where tasks can exist."""
        return Offer()

    def watch(self, changed: "Callable[[Change], None]") -> None:
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
