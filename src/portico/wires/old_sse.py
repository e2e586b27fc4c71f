"""An upstream at a URL by the transport of 2024-11-05: events in, a second URL to post to."""

import asyncio
from typing import Any

from portico.http1.errors import InvalidRequest
from portico.http1.url import join_url, parse_url
from portico.model.version import Version
from portico.process.read_pacing import ReadPacing
from portico.protocol.ladder import VERSION_HEADER
from portico.wires.event_reader import EventReader, ServerSentEvent
from portico.wires.http_requests import CONNECT_S, BrokenResponse, HttpRequests, Site, is_stream
from portico.wires.wire import Failure, Outgoing, Receiver, Wire


class HttpSse(Wire):
    """One long stream of events, whose first says where to post."""

    transport = "sse"

    _receiver: Receiver
    _endpoint: asyncio.Future[str]

    def __init__(self, site: Site) -> None:
        self._site = site
        self._web: HttpRequests | None = None
        self._reading: asyncio.Task[None] | None = None
        self._failure: Failure | None = None
        self._version: Version | None = None

    @property
    def server(self) -> str:
        """What people call it."""
        return self._site.name

    async def open(self, receiver: Receiver) -> None:
        """Open the stream and learn where to post."""
        self._receiver = receiver
        self._web = HttpRequests(self._site)
        self._endpoint = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(CONNECT_S):
                either: set[asyncio.Future[Any]] = {self._endpoint, self._reading}
                await asyncio.wait(either, return_when="FIRST_COMPLETED")
        except TimeoutError:
            self._failure = self._web.failure(
                f"opened a stream but did not say within {CONNECT_S:g} s where to post", "http"
            )
        if self._failure is not None:
            await self.close()
            raise self._failure.error()

    async def send(self, message: Outgoing) -> None:
        """Post a message; its answer, if any, comes on the stream."""
        if self._failure is not None:
            raise self._failure.error()
        assert self._web is not None
        headers = {"content-type": "application/json"}
        if self._version is not None:
            headers[VERSION_HEADER] = self._version.text
        url = self._endpoint.result()
        try:
            if not message.id:
                await self._web.tell(url, headers, message.data)
                return
            # Some answer the POST only when they answer the call: whoever asks has a limit.
            async with self._web.send("POST", url, headers, message.data) as response:
                await self._web.body(response)
        except BrokenResponse as broken:
            raise broken.failure.error() from None

    def settle(self, version: Version) -> None:
        """From now on all messages name the version."""
        self._version = version

    async def close(self) -> None:
        """End the stream, and with it the session."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self._web is not None:
            await self._web.close()

    async def _read(self) -> None:
        assert self._web is not None
        web = self._web
        try:
            events = {"accept": "text/event-stream"}
            async with web.send("GET", web.url, events, is_exempt=True) as response:
                if not is_stream(response):
                    raise BrokenResponse(web.failure("is no MCP server: it sent no events", "http"))
                web.check_plain(response)
                reader, pace = EventReader(self._site.max_message), ReadPacing()
                async for chunk in response:
                    await pace.spread(chunk, lambda piece: self._take_all(reader.feed(piece)))
            failure = web.failure("closed its stream", "closed")
        except BrokenResponse as broken:
            failure = broken.failure
        except Exception as error:  # noqa: BLE001  (one of ours: nobody reads on, and that is told)
            failure = web.failure(f"could not be heard: {error!r}")
        self._failure = failure
        if self._endpoint.done():
            self._receiver.lost(failure)

    def _take_all(self, events: list[ServerSentEvent]) -> bool:
        """Take in what came; True if any of it was waited for."""
        answered = self._receiver.answered
        for event in events:
            self._take(event)
        return self._receiver.answered > answered

    def _take(self, event: ServerSentEvent) -> None:
        assert self._web is not None
        if event.kind == "message":
            self._receiver.received(event.data)
        elif event.kind == "endpoint" and not self._endpoint.done():
            try:
                url = join_url(self._web.url, event.data.decode(errors="replace").strip())
                there = parse_url(url)
            except InvalidRequest:
                return
            # Elsewhere could be anybody's: our token stays with the origin it is for.
            if there.origin != parse_url(self._web.url).origin:
                why = f"wants messages posted to {there}, which is not its own origin"
                raise BrokenResponse(self._web.failure(why, "http"))
            self._endpoint.set_result(url)
