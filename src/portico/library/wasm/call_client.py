"""The client of a guest's call, as the functions of the host reach it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw

from portico.core.model.context import Ask, Context
from portico.core.model.errors import AskError
from portico.core.model.types import Change
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members
from portico.library.wasm.failures import Refused
from portico.library.wasm.handler_protocol import (
    ASK,
    CALL,
    CHANGED,
    LOG,
    MAX_TEXT,
    NEXT,
    PROGRESS,
    REQUEST,
    RESPONSE,
    TELL,
    UPDATED,
    too_long,
)

if TYPE_CHECKING:
    from portico.core.state.client_sessions import SessionValues

_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling"}


class CallClient(Protocol):
    """The client of one call; all methods run on the event loop."""

    values: "SessionValues | None"
    """The component's values for the client's session; None without a session."""

    async def next(self, request: str) -> str:
        """Pass a request to the rest of the chain, and return its response; raises Refused."""
        ...

    async def tell(self, what: str, params: dict[str, Any]) -> None:
        """Send a notification; raises Refused."""
        ...

    async def ask(self, method: str, params: dict[str, Any]) -> str:
        """Ask the client, and return its answer as JSON; raises Refused."""
        ...


class ProvidedClient:
    """The client of a component that offers something."""

    def __init__(
        self,
        context: Context,
        values: "SessionValues | None",
        changed: Callable[[Change], None],
    ) -> None:
        self._context = context
        self._changed = changed
        self.values = values

    async def next(self, request: str) -> str:
        """Refuse it: only middleware has something behind it."""
        raise Refused("only middleware can pass a request on")

    async def tell(self, what: str, params: dict[str, Any]) -> None:
        """Send a notification to the client of the call, or to all."""
        context = self._context
        if what == PROGRESS:
            await context.progress(params["progress"], params["total"], params["message"])
        elif what == LOG:
            try:
                await context.log(params["level"], params["data"], params["logger"])
            except ValueError as error:
                raise Refused(str(error)) from None
        elif what == UPDATED:
            self._changed(Change("resources", params["uri"]))
        elif what == CHANGED:
            self._changed(Change(params["kind"]))

    async def ask(self, method: str, params: dict[str, Any]) -> str:
        """Ask the client, in the way of its era."""
        capability = _CAPABILITIES[method]
        mode = "form" if capability == "elicitation" else ""
        key = f"{capability}-{self._context.count_call()}"
        try:
            answers = await self._context.ask({key: Ask(method, params, capability, mode)})
        except AskError as error:
            raise Refused(str(error)) from None
        return encode(answers[key]).decode()


class HandledClient:
    """The client of a middleware component: its link, at the other end of the pipe."""

    def __init__(self, context: Context, call: str, values: "SessionValues | None") -> None:
        self._context = context
        self._call = call
        self.values = values

    async def next(self, request: str) -> str:
        """Pass a request to the rest of the chain, and return its response."""
        try:
            members(msgspec.json.decode(request, type=Raw))
        except (msgspec.DecodeError, RecursionError):
            raise Refused("next was called with text that is not JSON") from None
        line = one_line(request)
        if len(line) > MAX_TEXT:
            raise Refused(too_long("the request for next", len(line)))
        result = await self._send(NEXT, b'"%b":%b' % (REQUEST.encode(), line))
        return bytes(members(result)[RESPONSE]).decode()

    async def tell(self, what: str, params: dict[str, Any]) -> None:
        """Let the link send a notification."""
        await self._send(TELL, b'"what":%b,"params":%b' % (encode(what), encode(params)))

    async def ask(self, method: str, params: dict[str, Any]) -> str:
        """Let the link ask the client."""
        fields = b'"method":%b,"params":%b' % (encode(method), encode(params))
        return (await self._send(ASK, fields)).decode()

    async def _send(self, method: str, fields: bytes) -> bytes:
        peer = self._context.peer
        if peer is None:
            raise Refused("the call has ended")
        params = b'{"%b":%b,%b}' % (CALL.encode(), encode(self._call), fields)
        try:
            return await peer.ask(method, params)
        except AskError as error:
            raise Refused(str(error)) from None


def one_line(text: str) -> bytes:
    """Return JSON on one line: a line break in it can only be a space."""
    return text.replace("\n", " ").replace("\r", " ").encode(errors="replace")
