"""A component that handles requests on their way, in the worker."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.core.model.context import Context
from portico.core.model.errors import McpError
from portico.core.model.message import Request, Response
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Change
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members
from portico.core.state.client_sessions import SessionValues
from portico.library.wasm.call_client import HandledClient, one_line
from portico.library.wasm.calls import Calls
from portico.library.wasm.failures import GuestFailure
from portico.library.wasm.guest import Guest, GuestError
from portico.library.wasm.handled_request import PassedBy
from portico.library.wasm.handler_protocol import (
    HANDLE,
    MAX_TEXT,
    READY,
    REQUEST,
    RESPONSE,
    too_long,
)
from portico.library.wasm.handlers import HandlerExport

_PROBE = "probe"


class _HandlerCapability:
    """A handler as the calls of a component know it."""

    methods = frozenset({HANDLE, _PROBE})

    def __init__(self, handler: HandlerExport) -> None:
        self._handler = handler

    def answer(self, guest: Guest, method: str, params: Mapping[str, Any]) -> Mapping[str, object]:
        """Return the response of the handler, as text."""
        if method == _PROBE:
            self._handler.probe(guest)
            return {}
        return {RESPONSE: self._handler.handle(guest, params[REQUEST])}


class _HandleParams(Struct):
    call: str
    request: Raw
    session: str = ""


class _Id(Struct):
    id: Raw


class HandlerProvider:
    """Answers the requests of a link with the handler of a component."""

    def __init__(self, name: str, on_start: Callable[[Request], object]) -> None:
        self.name = f"{name} as middleware"
        self._on_start = on_start
        self._calls: Calls | None = None
        self._capability: _HandlerCapability | None = None
        self._values: Callable[[str], SessionValues | None] = lambda _: None

    async def load(
        self,
        handler: HandlerExport | None,
        calls: Calls,
        values: Callable[[str], SessionValues | None],
    ) -> None:
        """Use a handler; `values` returns the values of the session of an id."""
        self._calls, self._values = calls, values
        self._capability = None if handler is None else _HandlerCapability(handler)
        if self._capability is not None:
            with suppress(GuestError, GuestFailure):
                await calls.answer(self._capability, _PROBE, {})

    def offer(self) -> Offer:
        """Return nothing: its lists are those of the link."""
        return Offer()

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Do nothing: the offer never changes."""

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer a request of the link."""
        if request.method == READY:
            return Response(id=request.id, result=b"{}")
        if request.method != HANDLE or self._capability is None:
            return None
        return self._handle(request, context)

    async def _handle(self, request: Request, context: Context) -> Response:
        assert self._calls is not None
        assert self._capability is not None
        params = request.decode_as(_HandleParams)
        handled = bytes(params.request)
        client = HandledClient(context, params.call, self._values(params.session))
        try:
            answer = await self._calls.answer(
                self._capability,
                HANDLE,
                {REQUEST: handled.decode()},
                partial(self._on_start, request),
                client,
            )
            assert answer is not None
            response = _checked(str(answer[RESPONSE]))
        except PassedBy as passed:
            response = one_line(passed.response)
        except GuestError as error:
            response = _failed(handled, error)
        except GuestFailure as error:
            raise McpError(str(error)) from None
        if len(response) > MAX_TEXT:
            raise McpError(too_long("its response", len(response)))
        result = b'{"%b":%b}' % (RESPONSE.encode(), response)
        return Response(id=request.id, result=result)


def _checked(text: str) -> bytes:
    """Return a response that can be sent; raises GuestFailure."""
    try:
        msgspec.json.decode(text, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError):
        raise GuestFailure("answered with text that is not a JSON object") from None
    return one_line(text)


def _failed(handled: bytes, error: GuestError) -> bytes:
    """Return the error that a handler returned, as the response to its request."""
    about: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        about["data"] = error.data
    id = bytes(members(handled).get("id", b"null"))
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id, encode(about))
