"""Calls of tools by their bare names, as the pages of MCP Apps make them: they know no prefixes."""

from collections.abc import Callable, Container

from portico.core.catalog.merge import ADDED, Merged
from portico.core.model.context import Context
from portico.core.model.errors import INVALID_PARAMS
from portico.core.model.message import Request
from portico.core.model.types import Answer, Handler
from portico.core.protocol.codec import encode, error_response
from portico.core.protocol.exact import with_field

_MAX_NAMED = 10
"""The limit of names in one error."""


def with_bare_names(
    merged: Callable[[], Merged], reserved: Container[str], next: Handler
) -> Handler:
    """Wrap the next handler so that it sees the exposed name of a tool that is called by its bare
    name. It must be a tool of exactly one server that offers this client a tool with a page; else
    the error names the candidates. `merged` returns the offers that the client may see; `reserved`
    are the names of Portico's own tools."""

    def handle(request: Request, context: Context) -> Answer:
        name, offers = request.name, merged()
        if name in offers.tools or name in reserved:
            return next(request, context)
        found = [
            namespaced
            for namespaced in offers.namespaced_offers.values()
            if name in namespaced.tools and namespaced.server != ADDED
        ]
        if not found:
            return next(request, context)
        with_page = [namespaced for namespaced in found if namespaced.with_ui]
        if len(with_page) != 1:
            context.target = ("", "")
            candidates = [one.tools[name] for one in with_page or found]
            return error_response(request.id, INVALID_PARAMS, _unclear(name, candidates))
        request.name = with_page[0].tools[name]
        request.params = with_field(request.params, "name", encode(request.name))
        return next(request, context)

    return handle


def _unclear(name: str, candidates: list[str]) -> str:
    more = len(candidates) - _MAX_NAMED
    names = [*candidates[:_MAX_NAMED], *([f"{more} more"] if more > 0 else [])]
    return f"unknown tool: {name[:200]}; call it as {' or '.join(names)}"
