"""A failure of ours, as the model that asked through a tool is told of it."""

from typing import Any

from portico.model.context import Context
from portico.model.errors import McpError
from portico.model.message import Request, Response
from portico.protocol.codec import encode, read_error
from portico.protocol.result_fields import error_result, identified

_ERROR_KEY = "portico/error"
_CONFIG_KINDS = ("start", "network", "refused")
"""Kinds of failures that a wrong entry of the config may be behind."""


def gateway_failure(response: Response, server: str) -> McpError | None:
    """Our own failure to have the call answered; None if the server itself answered so."""
    error = read_error(response.error)
    if error is None:
        return None
    code, message, data = error
    ours = isinstance(data, dict) and data.get("server") == server and "kind" in data
    return McpError(message, code, data) if ours else None


def failure_response(request: Request, context: Context, error: McpError) -> Response:
    """A model that asked through a tool reads what a tool says."""
    data = error.data if isinstance(error.data, dict) else {}
    words = error.message
    if data.get("kind") in _CONFIG_KINDS:
        words += f"; see its entry in the config, and `portico servers test {data.get('server')}`"
    return result_response(
        request, context, {**error_result(words), "_meta": {_ERROR_KEY: error.data}}
    )


def result_response(request: Request, context: Context, result: dict[str, Any]) -> Response:
    """A result of our own, as the client's version has it."""
    if request.version.modern:
        result = identified(result, context.server_info)
    return Response(id=request.id, result=encode(result))
