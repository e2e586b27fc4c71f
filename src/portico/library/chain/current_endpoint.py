"""An endpoint that passes each request to the current one of a changing registry."""

from collections.abc import Callable

from portico.core.model.context import Context
from portico.core.model.errors import INTERNAL_ERROR
from portico.core.model.message import NOTHING, Request
from portico.core.model.types import Answer, Endpoint
from portico.core.protocol.codec import error_response


class CurrentEndpoint:
    """Passes each request to the endpoint that a function returns then."""

    def __init__(self, find: Callable[[], Endpoint | None], missing: str) -> None:
        """`missing` is the error for requests while there is none."""
        self._find = find
        self._missing = missing

    def handle(self, request: Request, context: Context) -> Answer:
        """Answer a request as the current endpoint does."""
        endpoint = self._find()
        if endpoint is not None:
            return endpoint.handle(request, context)
        if not request.id:
            return NOTHING
        return error_response(request.id, INTERNAL_ERROR, self._missing)
