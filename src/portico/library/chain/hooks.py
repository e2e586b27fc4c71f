"""Links made of hooks, which get the calls of tools decoded."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable, iscoroutinefunction
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from portico.core.model.context import Context
from portico.core.model.errors import INTERNAL_ERROR, McpError, ToolError
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer, Handler, Link
from portico.core.protocol.codec import encode
from portico.core.protocol.exact import has_equal_keys, with_field
from portico.core.protocol.result_fields import error_result, identified
from portico.core.state.pending import after

HOOKS = ("on_call", "on_result", "on_error")


class ToolRequest(Struct, kw_only=True):
    """A call of a tool, as hooks see and change it."""

    name: str
    arguments: dict[str, Any]
    """Decoded. The tool gets exactly these, whatever the client's spelling of them."""
    context: Context
    request: Request
    """The request as it arrived."""

    def _sent(self, seen: bytes) -> Request:
        """Return the request to pass on; `seen` are the encoded arguments before any hook."""
        request = self.request
        try:
            arguments = encode(self.arguments)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise TypeError(f"the arguments of {self.name} have no JSON form: {error}") from None
        if self.name != request.name or arguments != seen:
            return request.calling(self.name, self.arguments)
        if self.arguments:  # of two equal keys the server may read the other one
            request.params = with_field(request.params, "arguments", arguments)
        return request


NextCall = Callable[[ToolRequest], Answer]
OnCall = Callable[[ToolRequest, NextCall], Answer]
OnResult = Callable[[ToolRequest, dict[str, Any]], Any]
"""Returns the result to send, or None for the same; may be `async def`."""


class _Call(Struct):
    arguments: dict[str, Any] | None = None


def hooks(
    *,
    on_call: OnCall | None = None,
    on_result: OnResult | None = None,
    on_error: OnResult | None = None,
) -> Link:
    """Return a link that passes calls of tools to `on_call`, and their outcomes to `on_result`, or
    to `on_error` if they are errors of the protocol."""
    outcome = _outcome(on_result, on_error)

    def link(next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.method != "tools/call":
                return next(request, context)
            arguments = request.decode_as(_Call).arguments or {}
            seen = encode(arguments)
            call = ToolRequest(
                name=request.name, arguments=arguments, context=context, request=request
            )

            def next_call(call: ToolRequest) -> Answer:
                return next(call._sent(seen), context)

            if on_call is None:
                return outcome(call, next_call(call))
            try:
                answer = on_call(call, next_call)
            except ToolError as error:
                return _refusal(call, error)
            if iscoroutinefunction(on_call):
                answer = _awaited(call, answer)
            return outcome(call, answer)

        return handle

    return link


async def _awaited(call: ToolRequest, answer: Awaitable[Response]) -> Response:
    try:
        return await answer
    except ToolError as error:
        return _refusal(call, error)


def _refusal(call: ToolRequest, error: ToolError) -> Response:
    """Return the failure of a tool, which the model gets to read."""
    request, result = call.request, error_result(str(error))
    if request.version.modern:
        result = identified(result, call.context.server_info)
    return Response(id=request.id, result=encode(result))


def _outcome(
    on_result: OnResult | None, on_error: OnResult | None
) -> Callable[[ToolRequest, Answer], Answer]:
    """Return the function that passes an answer to the hook for it."""

    def hook_for(response: Response) -> OnResult | None:
        return None if response.is_nothing else on_error if response.error else on_result

    async def wait(call: ToolRequest, answer: Awaitable[Response]) -> Response:
        response = await answer
        hook = hook_for(response)
        if hook is None:
            return response
        value = hook(call, _decoded(call, response))
        return _changed(call, response, await value if isawaitable(value) else value)

    def pass_on(call: ToolRequest, answer: Answer) -> Answer:
        def look(response: Response) -> Response:
            hook = hook_for(response)
            if hook is None:
                return response
            return _changed(call, response, hook(call, _decoded(call, response)))

        return after(answer, look)

    if on_result is None and on_error is None:
        return lambda call, answer: answer
    waits = iscoroutinefunction(on_result) or iscoroutinefunction(on_error)
    return wait if waits else pass_on


def _decoded(call: ToolRequest, response: Response) -> dict[str, Any]:
    try:
        return msgspec.json.decode(response.error or response.result, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise McpError(f"{call.name} sent an invalid result: {error}", INTERNAL_ERROR) from None


def _changed(call: ToolRequest, response: Response, value: Any) -> Response:
    """Return the response with another result or error; the same bytes if it is the same."""
    if value is None or value == _decoded(call, response):
        if not has_equal_keys(response.error or response.result):
            return response
        value = _decoded(call, response)  # of two equal keys the client may read the other one
    if not isinstance(value, dict):
        raise TypeError(f"a hook returned {type(value).__name__}, not a dict or None")
    if response.error:
        return replace(response, error=encode(value), code=int(value.get("code", response.code)))
    return replace(response, result=encode(value))
