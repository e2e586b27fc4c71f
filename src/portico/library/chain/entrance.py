"""The entrance of an endpoint, in front of the user's links: headers are checked, and calls become
tasks."""

from collections.abc import Callable, Mapping

from portico.core.catalog.catalog import Catalog
from portico.core.model.context import ANYONE, Context
from portico.core.model.errors import METHOD_NOT_FOUND, McpError
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer, Handler
from portico.core.protocol.codec import error_response
from portico.core.protocol.inbound import refuse
from portico.core.protocol.ladder import check_header_params
from portico.core.protocol.tasks import LIST_TASKS, TASK, TASKS, is_about_task
from portico.library.chain.endpoint_parts import CatalogSource, TaskEntrance
from portico.library.chain.fold import CATALOG_UNKNOWN, terminus

Hides = Callable[[Request, Context], bool]
"""True if the tool of a call is hidden from clients."""


def entrance(
    source: CatalogSource, links: Handler, tasks: TaskEntrance | None, hides: Hides | None
) -> Handler:
    """Return the handler in front of the links. A call that is hidden, or whose headers do not
    match it, never becomes a task."""
    tasked = links if tasks is None else tasks(links)
    must_wait = hides is not None or (tasks is not None and tasks.waits_for_catalog)

    def enter(request: Request, context: Context) -> Answer:
        if request.method != "tools/call":
            # The table of methods has none about tasks, and a notification is not answered.
            if tasks is None or request.meaning is not None or not request.id:
                return links(request, context)
            return about_task(request, context)
        # The headers of a call made by `execute_tool` describe that meta-tool.
        if context.headers is not None and not (request.asked or request.is_derived):
            mismatch = header_mismatch(request, context)
            if mismatch is not None:
                return mismatch
        if (
            tasks is not None
            and request.id
            and (
                tasks.sees_every_call
                or request.meta.client_capabilities.find(TASKS) >= 0
                or request.params.find(TASK) >= 0
                or request.meta.client_capabilities.find(b"\\") >= 0  # a key may be escaped
                or request.params.find(b"\\u") >= 0
            )
        ):
            return guarded(request, context) if must_wait else tasked(request, context)
        return links(request, context)

    def guarded(request: Request, context: Context) -> Answer:
        if source.catalog(request, context) is None:
            return later(request, context)
        is_hidden = hides is not None and hides(request, context)
        return terminus(request) if is_hidden else tasked(request, context)

    def about_task(request: Request, context: Context) -> Answer:
        if not is_about_task(request.method):
            return links(request, context)
        if request.method == LIST_TASKS and context.principal == ANYONE:
            why = f"method not found: {request.method}"  # the tasks may be another client's
            return error_response(request.id, METHOD_NOT_FOUND, why)
        catalog = source.catalog(request, context)
        if catalog is None:
            return later(request, context)
        context.server_info = catalog.identity
        return tasked(request, context)

    def header_mismatch(request: Request, context: Context) -> Answer | None:
        if not request.version.modern:
            return None
        catalog = source.catalog(request, context)
        if catalog is None:
            return later(request, context)
        assert context.headers is not None
        return _mismatch(catalog, request, context.headers)

    async def later(request: Request, context: Context) -> Response:
        await source.ready(request, context)
        if source.catalog(request, context) is None:
            raise McpError(CATALOG_UNKNOWN)
        return await enter(request, context)

    return enter


def _mismatch(catalog: Catalog, request: Request, headers: Mapping[str, str]) -> Response | None:
    """Return the rejection of a call whose headers differ from its arguments."""
    tool = catalog.tool(request.name)
    if tool is None or not tool.header_params:
        return None
    arguments = request.decode().get("arguments")
    rejection = check_header_params(tool.header_params, arguments, headers)
    return None if rejection is None else refuse(request.id, rejection).response
