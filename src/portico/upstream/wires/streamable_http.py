"""The wire to a URL over streamable HTTP, in both eras."""

import asyncio
import contextlib
from collections.abc import Mapping

from msgspec import Struct

from portico.core.http1.errors import Http1Error
from portico.core.http1.response import Http1Response
from portico.core.model.methods import LISTEN
from portico.core.model.version import Version
from portico.core.protocol.ladder import METHOD_HEADER
from portico.upstream.process.read_pacing import ReadPacing
from portico.upstream.wires.event_reader import EventReader
from portico.upstream.wires.http_client import (
    NO_RESULT,
    BrokenResponse,
    HttpClient,
    Site,
    is_stream,
)
from portico.upstream.wires.listener import Listener, reconnect_delay_s
from portico.upstream.wires.old_sse import HttpSse
from portico.upstream.wires.session_headers import ACCEPT, SESSION_HEADER, SessionHeaders
from portico.upstream.wires.wire import Outgoing, Receiver

_MAX_IDLE_RESUMES = 3
_SESSION_END_S = 0.5
"""How long other requests may take to fail once one of them found the session ended."""
STREAM_END_S = 1.0
"""How long a stream may take to end after its response, so that its connection is reused."""


class Url(Site, frozen=True):
    """A server at a URL."""

    def wire(self) -> "StreamableHttp":
        """Return a wire over the current transport."""
        return StreamableHttp(self)

    def older(self) -> HttpSse:
        """Return a wire over the transport of 2024-11-05."""
        return HttpSse(self)


class _SentRequest(Struct, frozen=True):
    """A request that was sent; no task waits for its response."""

    message: Outgoing
    sent: Mapping[str, str]
    """Its headers."""
    response: Http1Response


class StreamableHttp:
    """Each message is a POST; its response arrives as the body or on an event stream."""

    transport = "http"
    has_headers = True
    _client: HttpClient
    _receiver: Receiver

    def __init__(self, site: Site) -> None:
        self._site = site
        self._pending: dict[bytes, _SentRequest] = {}
        self._requests: dict[bytes, asyncio.Task[None]] = {}
        self._listener: Listener | None = None
        self._ending: asyncio.Task[None] | None = None
        self._not_run: list[bytes] = []  # requests that an ended session rejected
        self._headers = SessionHeaders()
        self._is_open = False

    @property
    def server(self) -> str:
        """The name of the server."""
        return self._site.name

    async def open(self, receiver: Receiver) -> None:
        """Send nothing yet: the first request shows whether the server is reachable."""
        self._receiver = receiver
        self._client = HttpClient(self._site)
        self._is_open = True

    async def send(self, message: Outgoing) -> None:
        """Post a message; wait until a notification is accepted, but not for a response."""
        if self.send_now(message):
            return
        try:
            await self._client.notify(self._client.url, self._headers.of(message), message.data)
        except BrokenResponse as broken:
            raise broken.failure.error() from None

    def send_now(self, message: Outgoing) -> bool:
        """Start a request; its response is awaited in the background."""
        if not message.id:
            return False
        if self._ending is not None:
            self._not_run.append(message.id)
            return True
        client, sent = self._client, self._headers.of(message)
        if _is_long_lived(message) or (self._listener is not None and self._listener.is_new):
            self._start_task(message, sent)
            return True
        response = client.begin(
            "POST", client.url, sent, message.data, lambda _: self._on_response(message.id)
        )
        if response is None:
            self._start_task(message, sent)
        else:
            self._pending[message.id] = _SentRequest(message, sent, response)
        return True

    def abandon(self, id: bytes) -> None:
        """Close the request's stream, which cancels it in the modern era."""
        pending = self._pending.pop(id, None)
        if pending is not None:
            pending.response.close()
        task = self._requests.get(id)
        if task is not None:
            task.cancel()

    def settle(self, version: Version) -> None:
        """Send the version from now on; open the listening stream of a legacy server."""
        self._headers.settle(version)
        if not version.modern:
            self._listener = Listener(self._client, self._headers, self._read, self._start_ending)

    def last_output(self) -> str:
        """Return nothing: a URL has no stderr."""
        return ""

    async def close(self) -> None:
        """End all streams, and the session, if any."""
        if not self._is_open:
            return
        self._is_open = False
        for id in tuple(self._pending):
            self.abandon(id)
        behind = (self._listener.task if self._listener is not None else None, self._ending)
        tasks = [*self._requests.values(), *(task for task in behind if task is not None)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._headers.session:
            with contextlib.suppress(BrokenResponse, TimeoutError):
                async with (
                    asyncio.timeout(STREAM_END_S),
                    self._client.send(
                        "DELETE", self._client.url, self._headers.common(), is_exempt=True
                    ),
                ):
                    pass
        await self._client.close()

    def _on_response(self, id: bytes) -> None:
        """Deliver a complete response at once; start a task for any other."""
        pending = self._pending.pop(id)
        message, response = pending.message, pending.response
        body = response.body()
        if body is None or not response.is_success or len(body) > self._site.max_message:
            self._start_task(message, pending.sent, response)
            return
        client, receiver = self._client, self._receiver
        reader = None
        try:
            self._remember_session(client, response)
            client.check_encoding(response)
            if is_stream(response):
                reader = EventReader(self._site.max_message)
                self._deliver(reader, body, id)
            elif body.strip():
                receiver.received(body, id)
        except BrokenResponse as broken:
            receiver.failed(id, broken.failure)
        except Exception as error:  # a bug of ours, as below
            receiver.failed(id, client.failure(f"failed with an internal error: {error!r}"))
            raise
        else:
            if receiver.is_pending(id) and reader is not None:
                self._start_task(message, pending.sent, response, reader)
            elif receiver.is_pending(id):
                receiver.failed(id, client.missing_result(response))

    def _start_task(
        self,
        message: Outgoing,
        sent: Mapping[str, str],
        response: Http1Response | None = None,
        reader: EventReader | None = None,
    ) -> None:
        """Start a task for a request, its started response, or the rest of its stream."""
        task = asyncio.create_task(self._request(message, sent, response, reader))
        self._requests[message.id] = task

        def finish(_: asyncio.Task[None]) -> None:
            self._requests.pop(message.id, None)
            if response is not None:  # the task may be cancelled before its start
                response.close()

        task.add_done_callback(finish)

    async def _request(
        self,
        message: Outgoing,
        sent: Mapping[str, str],
        started: Http1Response | None,
        reader: EventReader | None,
    ) -> None:
        client, receiver = self._client, self._receiver
        if started is None and self._listener is not None and self._listener.is_new:
            await self._listener.responded()
        is_whole = True
        try:
            if reader is None:
                async with client.send(
                    "POST",
                    client.url,
                    sent,
                    message.data,
                    started,
                    is_exempt=_is_long_lived(message),
                ) as response:
                    self._remember_session(client, response)
                    if is_stream(response):
                        reader = EventReader(self._site.max_message)
                        is_whole = await self._read(response, reader, message.id)
                    else:
                        body = await client.body(response)
                        if body.strip():
                            receiver.received(body, message.id)
                        receiver.failed(message.id, client.missing_result(response))
            if reader is not None and not self._headers.is_modern:
                await self._resume(reader, message.id, is_whole)
            receiver.failed(message.id, client.failure(NO_RESULT, "closed"))
        except BrokenResponse as broken:
            failure = broken.failure
            if failure.status == 404 and SESSION_HEADER in sent:
                self._not_run.append(message.id)  # it did not run
                self._start_ending()
            else:
                receiver.failed(message.id, failure)
        except Exception as error:  # a bug of ours: fail the request before its timeout
            receiver.failed(message.id, client.failure(f"failed with an internal error: {error!r}"))
            raise

    def _deliver(self, reader: EventReader, chunk: bytes, id: bytes) -> bool:
        """Deliver data of a stream; True if it had a pending response."""
        receiver = self._receiver
        answered = receiver.answered
        for event in reader.feed(chunk):
            if event.kind == "message":
                receiver.received(event.data, id)
        return receiver.answered > answered

    def _start_ending(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_session())

    async def _end_session(self) -> None:
        """Fail the wire; requests that did not run may be retried, the others may have run."""
        client, receiver = self._client, self._receiver
        for pending in tuple(self._pending.values()):
            del self._pending[pending.message.id]
            pending.response.clear_callback()
            self._start_task(pending.message, pending.sent, pending.response)
        others = {task for id, task in self._requests.items() if id not in self._not_run}
        if others:
            await asyncio.wait(others, timeout=_SESSION_END_S)
        why = "ended the session (HTTP 404)"
        for id in self._not_run:
            receiver.failed(id, client.failure(why, "session", 404))
        receiver.lost(client.failure(why, "closed", 404))

    async def _read(self, response: Http1Response, reader: EventReader, id: bytes) -> bool:
        """Read a stream until it ends, or until soon after its response; False if it was cut off
        and can be resumed."""
        client, receiver = self._client, self._receiver
        client.check_encoding(response)
        reader.begin()
        pacing = ReadPacing()
        try:
            async with asyncio.timeout(None) as limit:
                async for chunk in response:
                    await pacing.handle_in_slices(
                        chunk, lambda piece: self._deliver(reader, piece, id)
                    )
                    if id and limit.when() is None and not receiver.is_pending(id):
                        response.release_slot()
                        limit.reschedule(asyncio.get_running_loop().time() + STREAM_END_S)
        except TimeoutError:
            pass
        except Http1Error:
            if not reader.last_id or self._headers.is_modern:
                raise
            return False
        return True

    async def _resume(self, reader: EventReader, id: bytes, is_whole: bool) -> None:
        """Resume a legacy stream that was cut off, or that the server closed for polling."""
        client, receiver = self._client, self._receiver
        idle = 0
        while reader.last_id and receiver.is_pending(id) and idle < _MAX_IDLE_RESUMES:
            if is_whole:
                receiver.stream_closed(id)
            if is_whole or idle:  # after a cut, the first attempt follows at once
                await asyncio.sleep(reconnect_delay_s(reader))
            before = reader.last_id
            headers = {**self._headers.common(), **ACCEPT, "last-event-id": reader.last_id}
            try:
                async with client.send("GET", client.url, headers) as response:
                    is_whole = await self._read(response, reader, id)
            except BrokenResponse as broken:
                if is_whole:
                    raise
                why = f"dropped the connection, then {broken.failure.why}"
                raise BrokenResponse(client.failure(why, "network")) from None
            idle = idle + 1 if reader.last_id == before else 0

    def _remember_session(self, client: HttpClient, response: Http1Response) -> None:
        if not self._headers.remember(response):
            raise BrokenResponse(
                client.failure("sent a session id with characters other than visible ASCII", "http")
            )


def _is_long_lived(message: Outgoing) -> bool:
    """True for a request whose stream stays open: it must not block calls."""
    return message.headers.get(METHOD_HEADER) == LISTEN
