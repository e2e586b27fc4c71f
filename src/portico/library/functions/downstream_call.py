"""A call of a downstream tool on behalf of a handler.

In the modern era a handler runs again from its start whenever the client has answered a question.
So its calls are numbered, and the outcome of each is kept with the sealed state: a finished call is
not made again, and a call that waits for answers continues where it was.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.core.model.content import ToolResult
from portico.core.model.context import Ask, Context
from portico.core.model.errors import INTERNAL_ERROR, McpError, ToolError
from portico.core.model.message import Request, Response
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members, needed_capability
from portico.core.protocol.received_results import ReceivedToolResult

MAX_DEPTH = 8
"""The limit on tools that call each other."""


class _Question(Struct):
    method: str
    params: dict[str, Any] = {}


class _Result(ReceivedToolResult):
    resultType: str = ""  # noqa: N815  (fields of the wire)
    inputRequests: dict[str, _Question] = msgspec.field(default_factory=dict)  # noqa: N815
    requestState: Any = None  # noqa: N815


class _Error(Struct):
    code: int = INTERNAL_ERROR
    message: str = ""
    data: Any = None


async def call_tool(context: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Call a downstream tool until it is complete; its questions are those of this handler."""
    downstream, request = context.downstream, context.request
    if downstream is None or request is None:
        why = "no server is downstream of this one"
        how = (
            "put its server after this one in `portico run`, or set in_process = true in a gateway"
        )
        raise ToolError(f"cannot call {name!r}: {why}; {how}")
    if context.depth >= MAX_DEPTH:
        why = f"{MAX_DEPTH} tools call each other already"
        raise McpError(f"cannot call {name!r}: {why}; look for a tool that calls itself")
    call = _base(request.calling(name, arguments))
    number, kept = _kept(context, call)
    while kept is None or kept.resultType == "input_required":
        answered = call if kept is None else await _answered(context, number, call, kept)
        response = await downstream(answered, _inner(context))
        kept = _read(name, response)
        if request.version.modern:
            context.calls[str(number)] = [_digest(call), Raw(response.result)]
    return kept.typed()


def _base(call: Request) -> Request:
    """Return the call without the rounds and the progress of the handler's own request."""
    fields = members(call.params)
    meta = members(fields.get("_meta", b""))
    for key in ("inputResponses", "requestState", "task"):
        fields.pop(key, None)
    if meta.pop("progressToken", None) is not None:
        fields["_meta"] = Raw(encode(meta))
    return replace(
        call,
        params=encode(fields),
        meta=replace(call.meta, progress_token=b""),
        asked="",
        timeout_s=0.0,
    )


def _kept(context: Context, call: Request) -> tuple[int, _Result | None]:
    """Return the number of this call, and its outcome in an earlier round."""
    number = context.count_call()
    kept = context.calls.get(str(number))
    if kept is None or kept[0] != _digest(call):
        return number, None
    return number, msgspec.convert(kept[1], _Result)


def _digest(call: Request) -> str:
    """Return a digest of the tool and its arguments: a handler may call others in a later round."""
    arguments = members(call.params).get("arguments", b"")
    return blake2b(call.name.encode() + b"\0" + arguments, digest_size=16).hexdigest()


def _inner(context: Context) -> Context:
    inner = context.derived()
    inner.server_info = context.server_info
    inner.downstream = None
    inner.depth += 1
    return inner


async def _answered(context: Context, number: int, call: Request, kept: _Result) -> Request:
    """Return the call with the client's answers to its questions."""
    prefix = f"call-{number}/"
    asks = {f"{prefix}{key}": _ask(one) for key, one in kept.inputRequests.items()}
    answers = await context.ask(asks)
    fields = members(call.params)
    given = {key.removeprefix(prefix): answer for key, answer in answers.items()}
    fields["inputResponses"] = Raw(encode(given))
    if kept.requestState is not None:
        fields["requestState"] = Raw(encode(kept.requestState))
    return replace(call, params=encode(fields))


def _ask(question: _Question) -> Ask:
    capability, mode = needed_capability(question.method, question.params)
    if not capability:
        raise McpError(f"a downstream tool sent an unknown question: {question.method[:200]}")
    return Ask(question.method, question.params, capability, mode)


def _read(name: str, response: Response) -> _Result:
    if response.error:
        error = msgspec.json.decode(response.error, type=_Error)
        raise McpError(error.message, error.code, error.data)
    try:
        return msgspec.json.decode(response.result, type=_Result)
    except msgspec.DecodeError as error:
        raise McpError(f"{name!r} returned an invalid result: {error}") from None
