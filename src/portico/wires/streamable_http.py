"""An upstream at a URL: streamable HTTP, in both eras."""

import asyncio
import contextlib
from collections.abc import Mapping

from msgspec import Struct

from portico.http1.errors import Http1Error
from portico.http1.response import Http1Response
from portico.model.methods import LISTEN
from portico.model.version import Version
from portico.process.read_pacing import ReadPacing
from portico.protocol.ladder import METHOD_HEADER
from portico.wires.event_reader import EventReader
from portico.wires.http_requests import BrokenResponse, HttpRequests, Site, is_stream
from portico.wires.listener import Listener, delay_s
from portico.wires.old_sse import HttpSse
from portico.wires.session_headers import ACCEPT, SESSION_HEADER, SessionHeaders
from portico.wires.wire import Outgoing, Receiver

_MAX_IDLE_RESUMES = 3
_HEAR_S = 0.5
"""How long others may take to hear that their session is gone, once one has heard it."""
_NO_RESULT = "ended its answer before its result"
LINGER_S = 1.0
"""How long a stream may take to end after its answer, so that its connection can be used again."""


class Url(Site, frozen=True):
    """A server at a URL."""

    def wire(self) -> "StreamableHttp":
        """A connection by the current transport."""
        return StreamableHttp(self)

    def older(self) -> HttpSse:
        """A connection by the transport of 2024-11-05."""
        return HttpSse(self)


class _Begun(Struct, frozen=True):
    """A request that went out, and needs nobody to wait for it until its answer is there."""

    message: Outgoing
    sent: Mapping[str, str]
    """The headers it went out with."""
    response: Http1Response


class StreamableHttp:
    """Each message is a POST; a request's answer comes back as its body or on its stream."""

    transport = "http"
    mirrors = True
    _web: HttpRequests
    _receiver: Receiver

    def __init__(self, site: Site) -> None:
        self._site = site
        self._begun: dict[bytes, _Begun] = {}
        self._requests: dict[bytes, asyncio.Task[None]] = {}
        self._listener: Listener | None = None
        self._parting: asyncio.Task[None] | None = None
        self._unheard: list[bytes] = []  # requests that a forgotten session kept from running
        self._naming = SessionHeaders()
        self._is_open = False

    @property
    def server(self) -> str:
        """What people call it."""
        return self._site.name

    async def open(self, receiver: Receiver) -> None:
        """Nothing is sent yet: the first request shows whether anybody is there."""
        self._receiver = receiver
        self._web = HttpRequests(self._site)
        self._is_open = True

    async def send(self, message: Outgoing) -> None:
        """Post a message. A request's answer is awaited behind; all else, until it is accepted."""
        if self.send_now(message):
            return
        try:
            await self._web.tell(self._web.url, self._naming.of(message), message.data)
        except BrokenResponse as broken:
            raise broken.failure.error() from None

    def send_now(self, message: Outgoing) -> bool:
        """Begin a request; its answer is awaited behind."""
        if not message.id:
            return False
        if self._parting is not None:
            self._unheard.append(message.id)
            return True
        web, sent = self._web, self._naming.of(message)
        if _stays(message) or (self._listener is not None and self._listener.is_new):
            self._follow(message, sent)
            return True
        response = web.begin("POST", web.url, sent, message.data, lambda _: self._came(message.id))
        if response is None:
            self._follow(message, sent)
        else:
            self._begun[message.id] = _Begun(message, sent, response)
        return True

    def abandon(self, id: bytes) -> None:
        """Close the request's stream, which in the modern era cancels it."""
        begun = self._begun.pop(id, None)
        if begun is not None:
            begun.response.close()
        task = self._requests.get(id)
        if task is not None:
            task.cancel()

    def settle(self, version: Version) -> None:
        """From now on all messages name the version; a legacy server gets a stream to talk on."""
        self._naming.settle(version)
        if not version.modern:
            self._listener = Listener(self._web, self._naming, self._read, self._begin_parting)

    async def close(self) -> None:
        """End all streams, and the session if there is one."""
        if not self._is_open:
            return
        self._is_open = False
        for id in tuple(self._begun):
            self.abandon(id)
        behind = (self._listener.task if self._listener is not None else None, self._parting)
        tasks = [*self._requests.values(), *(task for task in behind if task is not None)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._naming.session:
            with contextlib.suppress(BrokenResponse, TimeoutError):
                async with (
                    asyncio.timeout(LINGER_S),
                    self._web.send("DELETE", self._web.url, self._naming.common(), is_exempt=True),
                ):
                    pass
        await self._web.close()

    def _came(self, id: bytes) -> None:
        """There is an answer: one that is whole is taken in at once, for others a task is made."""
        begun = self._begun.pop(id)
        message, response = begun.message, begun.response
        body = response.body()
        if body is None or not response.is_success or len(body) > self._site.max_message:
            self._follow(message, begun.sent, response)
            return
        web, receiver = self._web, self._receiver
        reader = None
        try:
            self._remember_session(web, response)
            web.check_plain(response)
            if is_stream(response):
                reader = EventReader(self._site.max_message)
                self._take(reader, body, id)
            elif body.strip():
                receiver.received(body, id)
        except BrokenResponse as broken:
            receiver.failed(id, broken.failure)
        except Exception as error:  # as below
            receiver.failed(id, web.failure(f"could not be asked: {error!r}"))
            raise
        else:
            if receiver.waits(id) and reader is not None:
                self._follow(message, begun.sent, response, reader)
            elif receiver.waits(id):
                receiver.failed(id, web.nothing(response))

    def _follow(
        self,
        message: Outgoing,
        sent: Mapping[str, str],
        response: Http1Response | None = None,
        heard: EventReader | None = None,
    ) -> None:
        """Have a task wait for an answer: from where it is sent, or begun, or was heard."""
        task = asyncio.create_task(self._request(message, sent, response, heard))
        self._requests[message.id] = task

        def over(_: asyncio.Task[None]) -> None:
            self._requests.pop(message.id, None)
            if response is not None:  # it may have been cancelled before it began
                response.close()

        task.add_done_callback(over)

    async def _request(
        self,
        message: Outgoing,
        sent: Mapping[str, str],
        begun: Http1Response | None,
        heard: EventReader | None,
    ) -> None:
        web, receiver = self._web, self._receiver
        if begun is None and self._listener is not None and self._listener.is_new:
            await self._listener.answered()
        reader, is_whole = heard, True
        try:
            if reader is None:
                async with web.send(
                    "POST", web.url, sent, message.data, begun, is_exempt=_stays(message)
                ) as response:
                    self._remember_session(web, response)
                    if is_stream(response):
                        reader = EventReader(self._site.max_message)
                        is_whole = await self._read(response, reader, message.id)
                    else:
                        body = await web.body(response)
                        if body.strip():
                            receiver.received(body, message.id)
                        receiver.failed(message.id, web.nothing(response))
            if reader is not None and not self._naming.is_modern:
                await self._resume(reader, message.id, is_whole)
            receiver.failed(message.id, web.failure(_NO_RESULT, "closed"))
        except BrokenResponse as broken:
            failure = broken.failure
            if failure.status == 404 and SESSION_HEADER in sent:
                self._unheard.append(message.id)  # it has not run
                self._begin_parting()
            else:
                receiver.failed(message.id, failure)
        except Exception as error:  # one of ours: whoever waits need not wait for its limit
            receiver.failed(message.id, web.failure(f"could not be asked: {error!r}"))
            raise

    def _take(self, reader: EventReader, chunk: bytes, id: bytes) -> bool:
        """Take in what came on a stream; True if any of it was waited for."""
        receiver = self._receiver
        answered = receiver.answered
        for event in reader.feed(chunk):
            if event.kind == "message":
                receiver.received(event.data, id)
        return receiver.answered > answered

    def _begin_parting(self) -> None:
        if self._parting is None:
            self._parting = asyncio.create_task(self._part())

    async def _part(self) -> None:
        """Begin anew with what has not run; the rest may be half done, and is not repeated."""
        web, receiver = self._web, self._receiver
        for begun in tuple(self._begun.values()):
            del self._begun[begun.message.id]
            begun.response.clear_callback()
            self._follow(begun.message, begun.sent, begun.response)
        others = {task for id, task in self._requests.items() if id not in self._unheard}
        if others:
            await asyncio.wait(others, timeout=_HEAR_S)
        why = "has ended the session (HTTP 404)"
        for id in self._unheard:
            receiver.failed(id, web.failure(why, "session", 404))
        receiver.lost(web.failure(why, "closed", 404))

    async def _read(self, response: Http1Response, reader: EventReader, id: bytes) -> bool:
        """Take in a stream until it ends, or soon after its request has been answered; False if it
        was cut, but can be taken up where it was."""
        web, receiver = self._web, self._receiver
        web.check_plain(response)
        reader.begin()
        pace = ReadPacing()
        try:
            async with asyncio.timeout(None) as limit:
                async for chunk in response:
                    await pace.spread(chunk, lambda piece: self._take(reader, piece, id))
                    if id and limit.when() is None and not receiver.waits(id):
                        response.release_slot()
                        limit.reschedule(asyncio.get_running_loop().time() + LINGER_S)
        except TimeoutError:
            pass
        except Http1Error:
            if not reader.last_id or self._naming.is_modern:
                raise
            return False
        return True

    async def _resume(self, reader: EventReader, id: bytes, is_whole: bool) -> None:
        """Go on with a legacy stream that was cut, or whose server closed it to be polled."""
        web, receiver = self._web, self._receiver
        idle = 0
        while reader.last_id and receiver.waits(id) and idle < _MAX_IDLE_RESUMES:
            if is_whole:
                receiver.hung_up(id)
            if is_whole or idle:  # a server that is gone must be known to be at once
                await asyncio.sleep(delay_s(reader))
            before = reader.last_id
            headers = {**self._naming.common(), **ACCEPT, "last-event-id": reader.last_id}
            try:
                async with web.send("GET", web.url, headers) as response:
                    is_whole = await self._read(response, reader, id)
            except BrokenResponse as broken:
                if is_whole:
                    raise
                why = f"broke the connection, then {broken.failure.why}"
                raise BrokenResponse(web.failure(why, "network")) from None
            idle = idle + 1 if reader.last_id == before else 0

    def _remember_session(self, web: HttpRequests, response: Http1Response) -> None:
        if not self._naming.remember(response):
            raise BrokenResponse(web.failure("gave a session id that is no visible ASCII", "http"))


def _stays(message: Outgoing) -> bool:
    """True for a request whose stream stays open: it must not keep calls from being sent."""
    return message.headers.get(METHOD_HEADER) == LISTEN
