"""A link that keeps only those params that every server parses alike."""

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.methods import METHODS_WITH_TARGET
from portico.core.model.types import Answer, Handler
from portico.core.protocol.exact import exact, without_duplicates


def exact_params(next: Handler) -> Handler:
    """Make sure that links decide on the same params that the server will read."""

    def handle(request: Request, context: Context) -> Answer:
        if request.method in METHODS_WITH_TARGET and request.params:
            request.params = without_duplicates(request.params, exact(request.params))
        return next(request, context)

    return handle
