"""The process of a middleware component: a request goes in, its own requests come back, an answer
comes out.

    portico/ready   to the worker: answered once the component is loaded
    portico/handle  to the worker: `request`, a whole JSON-RPC request; it returns `response`
    portico/next    from the worker, while it handles `call`: `request`; it gets the `response` of
                    the rest of the chain
    portico/ask     from the worker, for `call`: a question to the client; it gets the answer
    portico/tell    from the worker, for `call`: progress, a log message, a changed resource or list
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from portico.core.model.errors import INVALID_REQUEST, McpError, TargetError
from portico.core.model.version import MODERN
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import CAPABILITIES_KEY, VERSION_KEY, members
from portico.library.wasm.handler_protocol import ASK, HANDLE, MAX_TEXT, NEXT, READY, TELL, too_long
from portico.upstream.connections.backoff import BackoffLimits, CircuitBreaker
from portico.upstream.rpc.exchange import Exchange
from portico.upstream.rpc.rpc_error import ServerError
from portico.upstream.wires.wire import Address

_START_S = 180.0
"""How long a worker may take to load its component, which it may have to compile."""
_GRACE_S = 5.0
"""A worker ends its guest by itself; this long after its time, it is given up."""
_FOREVER_S = 86400.0
_MAX_CALLS = 256
_META = encode({VERSION_KEY: MODERN[-1].text, CAPABILITIES_KEY: {}})

Act = Callable[[str, dict[str, Raw]], Awaitable[bytes]]
"""Does what a worker requests for a call: takes the method and the params, returns the result."""


class _Wish(NamedTuple):
    """A request of the worker, for the call that it works on."""

    method: str
    params: dict[str, Raw]
    result: "asyncio.Future[bytes]"

    def refuse(self, who: str) -> None:
        """Answer that the call has ended."""
        if not self.result.done():
            why = f"{self.method} came too late: {who} has ended this call already"
            self.result.set_exception(McpError(why, INVALID_REQUEST))
            self.result.exception()  # the worker may have ended


class _About(Struct):
    call: str = ""


class HandlerWorker:
    """A worker process, started when it is needed, and again after it has ended."""

    def __init__(self, address: Address, *, time_s: float = 30.0, idle_s: float = 300.0) -> None:
        """`time_s` limits the time of one call, without that of the requests it makes; a worker
        without calls for `idle_s` is ended."""
        self.name = address.name
        self._address = address
        self._time_s = time_s + _GRACE_S
        self._idle_s = idle_s
        self._opening = asyncio.Lock()
        self._exchange: Exchange | None = None
        self._calls: dict[str, asyncio.Queue[_Wish]] = {}
        self._numbers = 0
        self._idle: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        clock = asyncio.get_running_loop().time
        self._breaker = CircuitBreaker(self.name, BackoffLimits(), clock)

    async def handle(self, message: bytes, act: Act, session: str = "") -> bytes:
        """Pass a request to the component and return its raw response; `act` runs in the caller's
        task. `session` is the id of the client's session for the component. Raises McpError."""
        if len(message) > MAX_TEXT:
            raise McpError(f"{self.name}: {too_long('the request', len(message))}")
        if len(self._calls) >= _MAX_CALLS:
            raise McpError(f"{self.name} is busy with {_MAX_CALLS} requests; retry later")
        exchange = await self._opened()
        self._numbers += 1
        number = str(self._numbers)
        wishes = self._calls[number] = asyncio.Queue()
        about = b'"call":"%b","session":"%b"' % (number.encode(), session.encode())
        params = b'{"_meta":%b,%b,"request":%b}' % (_META, about, message)
        answer = asyncio.ensure_future(
            exchange.request(exchange.next_id(), HANDLE, params, timeout=_FOREVER_S)
        )
        try:
            result = await self._converse(answer, wishes, act)
        except ServerError as error:
            raise _as_mcp_error(self.name, error) from None
        except TargetError as error:
            raise self._failed(error) from None
        finally:
            self._calls.pop(number)
            self._end(answer, wishes)
        self._breaker.succeeded()
        return bytes(members(result).get("response", b""))

    async def _converse(
        self, answer: "asyncio.Future[bytes]", wishes: "asyncio.Queue[_Wish]", act: Act
    ) -> bytes:
        """Do what the worker requests until it has answered; only its own time is limited."""
        loop = asyncio.get_running_loop()
        left = self._time_s
        while True:
            started = loop.time()
            wish = asyncio.ensure_future(wishes.get())
            try:
                ends = (answer, wish)
                await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                is_asked = wish.done() and not wish.cancelled()
                wish.cancel()
            left -= loop.time() - started
            if answer.done():
                if is_asked:
                    wish.result().refuse(self.name)
                return answer.result()
            if not is_asked:
                why = f"{self.name} did not answer within {self._time_s:g} s"
                raise TargetError(why, kind="timeout", server=self.name)
            await _act(wish.result(), act)

    async def _opened(self) -> Exchange:
        """Return the connection to a worker that has loaded its component."""
        async with self._opening:
            if self._exchange is None or self._exchange.is_over():
                try:
                    self._breaker.check()
                    self._exchange = await self._open()
                except ServerError as error:
                    raise _as_mcp_error(self.name, error) from None
                except TargetError as error:
                    raise self._failed(error) from None
        self._watch_idle()
        return self._exchange

    async def _open(self) -> Exchange:
        exchange = Exchange(self._address.wire(), self.name, self._serve, _ignore)
        try:
            await exchange.open()
            params = b'{"_meta":%b}' % _META
            await exchange.request(exchange.next_id(), READY, params, timeout=_START_S)
        except BaseException:
            await asyncio.shield(exchange.close())
            raise
        return exchange

    async def _serve(self, method: str, params: bytes, about: bytes) -> bytes:
        """Pass a request of the worker to the call that it belongs to."""
        fields = members(params)
        with suppress(msgspec.DecodeError):
            wishes = self._calls.get(msgspec.json.decode(params, type=_About).call)
            if wishes is not None and method in (NEXT, ASK, TELL):
                result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
                wishes.put_nowait(_Wish(method, fields, result))
                return await result
        why = f"{method[:80]} came too late: {self.name} has ended this call already"
        raise McpError(why, INVALID_REQUEST)

    def _failed(self, error: TargetError) -> McpError:
        if error.kind != "breaker":
            self._breaker.failed(str(error))
        return McpError(str(error), data={"kind": error.kind, "server": self.name})

    def _end(self, answer: "asyncio.Future[bytes]", wishes: "asyncio.Queue[_Wish]") -> None:
        """Cancel what is left of a call."""
        answer.cancel()
        while not wishes.empty():
            wishes.get_nowait().refuse(self.name)
        if answer.done() and not answer.cancelled():
            answer.exception()
        self._watch_idle()

    def _watch_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        loop = asyncio.get_running_loop()
        self._idle = None if self._calls else loop.call_later(self._idle_s, self.stop)

    def stop(self) -> None:
        """End the process; the next request starts another."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            task = asyncio.ensure_future(exchange.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def stopped(self) -> None:
        """Wait until all stopped processes have ended."""
        if self._closing:
            await asyncio.wait(set(self._closing))


async def _act(wish: _Wish, act: Act) -> None:
    try:
        outcome = await act(wish.method, wish.params)
        if len(outcome) > MAX_TEXT:
            raise McpError(too_long("the response", len(outcome)))
    except McpError as error:
        if not wish.result.done():
            wish.result.set_exception(error)
        return
    except BaseException:
        wish.refuse("the client")  # the call ends here, such as with a question
        raise
    if not wish.result.done():
        wish.result.set_result(outcome)


def _as_mcp_error(name: str, error: ServerError) -> McpError:
    """Return the error of a worker: its guest failed."""
    fields = members(error.raw)
    try:
        message = msgspec.json.decode(fields.get("message", b'""'), type=str)
    except msgspec.DecodeError:
        message = ""
    words = message or "failed"
    return McpError(words if words.startswith(name) else f"{name}: {words}")


def _ignore(method: str, params: bytes, about: bytes) -> None:
    """A worker's notifications about lists: a middleware has none of its own."""
