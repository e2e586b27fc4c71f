"""The wire to a URL over the transport of 2024-11-05: events in, a second URL for messages."""

import asyncio
from typing import Any

from portico.core.http1.errors import InvalidRequest
from portico.core.http1.url import join_url, parse_url
from portico.core.model.version import Version
from portico.core.protocol.ladder import VERSION_HEADER
from portico.upstream.process.read_pacing import ReadPacing
from portico.upstream.wires.event_reader import EventReader, ServerSentEvent
from portico.upstream.wires.http_client import (
    CONNECT_S,
    BrokenResponse,
    HttpClient,
    Site,
    is_stream,
)
from portico.upstream.wires.wire import Failure, Outgoing, Receiver, Wire


class HttpSse(Wire):
    """One long event stream; its first event names the URL for messages."""

    transport = "sse"

    _receiver: Receiver
    _endpoint: asyncio.Future[str]

    def __init__(self, site: Site) -> None:
        self._site = site
        self._client: HttpClient | None = None
        self._reading: asyncio.Task[None] | None = None
        self._failure: Failure | None = None
        self._version: Version | None = None

    @property
    def server(self) -> str:
        """The name of the server."""
        return self._site.name

    async def open(self, receiver: Receiver) -> None:
        """Open the stream and wait for the URL for messages."""
        self._receiver = receiver
        self._client = HttpClient(self._site)
        self._endpoint = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(CONNECT_S):
                either: set[asyncio.Future[Any]] = {self._endpoint, self._reading}
                await asyncio.wait(either, return_when="FIRST_COMPLETED")
        except TimeoutError:
            self._failure = self._client.failure(
                f"opened an event stream but sent no endpoint within {CONNECT_S:g} s", "http"
            )
        if self._failure is not None:
            await self.close()
            raise self._failure.error()

    async def send(self, message: Outgoing) -> None:
        """Post a message; its response, if any, arrives on the stream."""
        if self._failure is not None:
            raise self._failure.error()
        assert self._client is not None
        headers = {"content-type": "application/json"}
        if self._version is not None:
            headers[VERSION_HEADER] = self._version.text
        url = self._endpoint.result()
        try:
            if not message.id:
                await self._client.notify(url, headers, message.data)
                return
            # Some servers respond to the POST only after the call; the caller has a timeout.
            async with self._client.send("POST", url, headers, message.data) as response:
                await self._client.body(response)
        except BrokenResponse as broken:
            raise broken.failure.error() from None

    def settle(self, version: Version) -> None:
        """Send the version with all further messages."""
        self._version = version

    async def close(self) -> None:
        """End the stream, and with it the session."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self._client is not None:
            await self._client.close()

    async def _read(self) -> None:
        assert self._client is not None
        client = self._client
        try:
            events = {"accept": "text/event-stream"}
            async with client.send("GET", client.url, events, is_exempt=True) as response:
                if not is_stream(response):
                    raise BrokenResponse(
                        client.failure("did not send an event stream; check its URL", "http")
                    )
                client.check_encoding(response)
                reader, pacing = EventReader(self._site.max_message), ReadPacing()
                async for chunk in response:
                    await pacing.handle_in_slices(
                        chunk, lambda piece: self._deliver_all(reader.feed(piece))
                    )
            failure = client.failure("closed its event stream", "closed")
        except BrokenResponse as broken:
            failure = broken.failure
        except Exception as error:  # noqa: BLE001  (a bug of ours: the wire ends and reports it)
            failure = client.failure(f"failed with an internal error: {error!r}")
        self._failure = failure
        if self._endpoint.done():
            self._receiver.lost(failure)

    def _deliver_all(self, events: list[ServerSentEvent]) -> bool:
        """Deliver events; True if one was a pending response."""
        answered = self._receiver.answered
        for event in events:
            self._deliver(event)
        return self._receiver.answered > answered

    def _deliver(self, event: ServerSentEvent) -> None:
        assert self._client is not None
        if event.kind == "message":
            self._receiver.received(event.data)
        elif event.kind == "endpoint" and not self._endpoint.done():
            try:
                url = join_url(self._client.url, event.data.decode(errors="replace").strip())
                endpoint = parse_url(url)
            except InvalidRequest:
                return
            # Our token must not be sent to another origin.
            if endpoint.origin != parse_url(self._client.url).origin:
                why = f"sent the endpoint {endpoint}, which is on another origin"
                raise BrokenResponse(self._client.failure(why, "http"))
            self._endpoint.set_result(url)
