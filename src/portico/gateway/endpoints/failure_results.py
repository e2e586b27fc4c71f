"""The gateway's own failures as tool results, which a model can read."""

from typing import Any

from portico.core.model.context import Context
from portico.core.model.errors import McpError
from portico.core.model.message import Request, Response
from portico.core.protocol.codec import encode, read_error
from portico.core.protocol.result_fields import error_result, identified

_ERROR_KEY = "portico/error"
_CONFIG_KINDS = ("start", "network", "refused")
"""Kinds of failures that a wrong entry of the config may cause."""


def gateway_failure(response: Response, server: str) -> McpError | None:
    """Return the gateway's own failure to reach the server; None if the server sent the error."""
    error = read_error(response.error)
    if error is None:
        return None
    code, message, data = error
    ours = isinstance(data, dict) and data.get("server") == server and "kind" in data
    return McpError(message, code, data) if ours else None


def failure_response(request: Request, context: Context, error: McpError) -> Response:
    """Return a failure as a tool result."""
    data = error.data if isinstance(error.data, dict) else {}
    words = error.message
    if data.get("kind") in _CONFIG_KINDS:
        words += f"; check its config, or run `portico servers test {data.get('server')}`"
    return result_response(
        request, context, {**error_result(words), "_meta": {_ERROR_KEY: error.data}}
    )


def result_response(request: Request, context: Context, result: dict[str, Any]) -> Response:
    """Return a result of the gateway itself in the client's protocol version."""
    if request.version.modern:
        result = identified(result, context.server_info)
    return Response(id=request.id, result=encode(result))
