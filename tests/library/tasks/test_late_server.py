"""Requests about tasks of a server that is not known yet."""

import pytest

from portico.core.model.context import Context
from portico.core.model.errors import INVALID_PARAMS, McpError
from portico.core.model.message import Request, Response
from portico.core.model.version import Version
from portico.library.tasks.mcp.task_host import TaskHost
from portico.library.tasks.mcp.task_link import TaskLink
from portico.library.tasks.mcp.task_policy import PromotionTerms, TaskPolicy
from portico.library.tasks.store.store import tasks_in_memory
from portico.library.tasks.worker.worker import TaskWorker


class LatePolicy(TaskPolicy):
    """Of a server that is known to have tasks once it was waited for."""

    names_servers = False
    is_declared = False

    def terms(self, request: Request) -> PromotionTerms:
        return PromotionTerms()

    async def ready(self, request: Request) -> bool:
        self.is_declared = True
        return bool(request.name)

    def server_of(self, context: Context) -> str:
        return ""


async def never(request: Request, context: Context) -> Response:
    raise AssertionError("the server got a request about the tasks of all its clients")


async def test_a_request_about_a_task_needs_no_tool() -> None:
    host = TaskHost(TaskWorker(tasks_in_memory))
    handle = TaskLink(lambda: host, "", LatePolicy())(never)
    about = Request(
        method="tasks/get", params=b'{"taskId":"ptk_x"}', version=Version.V2025_11_25, id=b"1"
    )
    answer = handle(about, Context())
    assert not isinstance(answer, Response)
    with pytest.raises(McpError) as refused:
        await answer
    assert refused.value.code == INVALID_PARAMS
    await host.worker.close()
