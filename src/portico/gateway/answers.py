"""A failure of ours, as the model that asked through a tool is told of it."""

from typing import Any

import msgspec
from msgspec import Struct

from portico.model.context import Context
from portico.model.errors import McpError
from portico.model.message import Request, Response
from portico.protocol.codec import encode
from portico.protocol.results import error_result, identified

_ERROR_KEY = "portico/error"
_CONFIGURED = ("start", "network", "refused")
"""Kinds of failures that a wrong entry of the config may be behind."""


class _Error(Struct):
    code: int = 0
    message: str = ""
    data: Any = None


def own_failure(response: Response, server: str) -> McpError | None:
    """Our own failure to have the call answered; None if the server itself answered so."""
    try:
        error = msgspec.json.decode(response.error, type=_Error)
    except msgspec.DecodeError:
        return None  # a number that no float holds, say: none of ours has one
    data = error.data
    ours = isinstance(data, dict) and data.get("server") == server and "kind" in data
    return McpError(error.message, error.code, data) if ours else None


def failed(request: Request, context: Context, error: McpError) -> Response:
    """A model that asked through a tool reads what a tool says."""
    data = error.data if isinstance(error.data, dict) else {}
    words = error.message
    if data.get("kind") in _CONFIGURED:
        words += f"; see its entry in the config, and `portico servers test {data.get('server')}`"
    return said(request, context, {**error_result(words), "_meta": {_ERROR_KEY: error.data}})


def said(request: Request, context: Context, result: dict[str, Any]) -> Response:
    """A result of our own, as the client's version has it."""
    if request.version.modern:
        result = identified(result, context.server_info)
    return Response(id=request.id, result=encode(result))
