"""The checks of a response of middleware: its id, its parts, and no question of its own."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from portico.core.model.errors import INTERNAL_ERROR, McpError
from portico.core.model.message import Request, Response
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import URL_REQUIRED, members


class _Answered(Struct):
    """A response of a component."""

    id: Raw
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Error(Struct):
    code: Annotated[int, Meta(ge=-(2**31), lt=2**31)]
    message: str


class _ResultType(Struct):
    resultType: str = "complete"  # noqa: N815  (a field of the wire)


def response_of(request: Request, raw: bytes, passed: Sequence[Response], name: str) -> Response:
    """Return a component's answer as the response to a request; raises McpError.

    `passed` are the responses that it got for this request. Only they may ask the client: a
    question of its own would need no grant, and no name.
    """
    answered = f"{name} answered {request.method}"
    answer = decoded(raw, _Answered)
    if answer is None:
        raise McpError(f"{answered} with text that is not a response")
    if not _is_same(bytes(answer.id), request.id):
        raise McpError(f"{answered} under another id than the request has")
    if not isinstance(answer.error, UnsetType):
        return _failed(request, bytes(answer.error), [one.error for one in passed], answered)
    if isinstance(answer.result, UnsetType) or bytes(answer.result)[:1] != b"{":
        raise McpError(f"{answered} with neither a result nor an error")
    result = bytes(answer.result)
    if result in (one.result for one in passed):
        return Response(id=request.id, result=result)
    kind = decoded(result, _ResultType)
    is_final = kind is not None and kind.resultType == "complete"
    if not is_final and not _is_same_as_any(result, [one.result for one in passed]):
        what = f"a result of the type {'' if kind is None else kind.resultType[:40]!r}"
        raise McpError(f"{answered} with {what} that next did not return; {_ASK}")
    if request.version.modern:
        fields = members(result)
        if "resultType" not in fields:
            result = encode({"resultType": "complete", **fields})
    return Response(id=request.id, result=result)


_ASK = "it may ask only with elicit or sample, if that is granted"


def _failed(request: Request, error: bytes, passed: Sequence[bytes], answered: str) -> Response:
    """Return the response with an error; raises McpError."""
    known = decoded(error, _Error)
    if known is None and not _is_same_as_any(error, passed):
        raise McpError(f"{answered} with an error without a code or a message that can be read")
    if known is not None and known.code == URL_REQUIRED and not _is_same_as_any(error, passed):
        what = f"an error of the code {URL_REQUIRED}"
        raise McpError(f"{answered} with {what} that next did not return; {_ASK}")
    code = INTERNAL_ERROR if known is None else known.code
    return Response(id=request.id, error=error, code=code or INTERNAL_ERROR)


def failure_of(response: Response, name: str, method: str) -> McpError:
    """Return the error of a list that a component could not read."""
    error = decoded(response.error, _Error)
    return McpError(f"{name} failed {method}: {'' if error is None else error.message[:400]}")


def _is_same(id: bytes, other: bytes) -> bool:
    if id == other:
        return True
    try:
        one, two = msgspec.json.decode(id), msgspec.json.decode(other)
    except msgspec.DecodeError:
        return False
    return type(one) is type(two) and one == two


def _is_same_as_any(raw: bytes, others: Sequence[bytes]) -> bool:
    """True if `next` returned it, perhaps with other spaces or metadata."""
    return any(one and _without_meta(raw) == _without_meta(one) for one in others)


def _without_meta(raw: bytes) -> Any:
    fields = decoded(raw, dict[str, Any])
    return fields and {name: value for name, value in fields.items() if name != "_meta"}
