"""The stream on which a legacy server at a URL sends messages outside of requests."""

import asyncio
from collections.abc import Awaitable, Callable

from portico.core.http1.response import Http1Response
from portico.upstream.wires.event_reader import EventReader
from portico.upstream.wires.http_client import BrokenResponse, HttpClient, is_stream
from portico.upstream.wires.session_headers import SessionHeaders
from portico.upstream.wires.wire import LOGIN

_RETRY_S = 1.0
_MAX_RETRY_S = 30.0
_SERVER_FAULT = 500
_NO_SESSION = 404
"""Means that the session ended, if the server had offered the stream before."""
_FIRST_RESPONSE_S = 0.25
"""How long the first requests wait until the stream is open: a server's own requests before that
are lost."""


class Listener:
    """Keeps the stream open, and reopens it when it ends, if the server offers one."""

    def __init__(
        self,
        client: HttpClient,
        session_headers: SessionHeaders,
        read: Callable[[Http1Response, EventReader, bytes], Awaitable[bool]],
        on_session_lost: Callable[[], None],
    ) -> None:
        """`read` reads a stream to its end; `on_session_lost` is called if the session ended."""
        self._client = client
        self._headers = session_headers
        self._read = read
        self._on_session_lost = on_session_lost
        self._responded = asyncio.Event()
        self.task = asyncio.create_task(self._listen())

    @property
    def is_new(self) -> bool:
        """True until the server responded, or the time for that has passed."""
        return not self._responded.is_set()

    async def responded(self) -> None:
        """Wait until the server responds, for a moment."""
        try:
            async with asyncio.timeout(_FIRST_RESPONSE_S):
                await self._responded.wait()
        except TimeoutError:
            self._responded.set()

    async def _listen(self) -> None:
        client = self._client
        reader = EventReader(client.site.max_message)
        empty_streams = 0
        is_offered = False
        while True:
            headers = {**self._headers.common(), "accept": "text/event-stream"}
            if reader.last_id:
                headers["last-event-id"] = reader.last_id
            before = reader.count
            try:
                async with client.send("GET", client.url, headers, is_exempt=True) as response:
                    self._responded.set()
                    if not is_stream(response):
                        return
                    is_offered = True
                    await self._read(response, reader, b"")
            except BrokenResponse as broken:
                self._responded.set()
                if broken.failure.kind == LOGIN:
                    return  # a login opens another session
                status = broken.failure.status
                if status is not None and status < _SERVER_FAULT:
                    if status == _NO_SESSION and is_offered and self._headers.session:
                        self._on_session_lost()
                    return  # 405: it offers no stream; others: not to us
            # Exponential backoff while no events arrive.
            pause = reconnect_delay_s(reader) * 2 ** min(empty_streams, 10)
            empty_streams = 0 if reader.count > before else empty_streams + 1
            await asyncio.sleep(min(pause, _MAX_RETRY_S))


def reconnect_delay_s(reader: EventReader) -> float:
    """Return how long to wait before reopening a stream."""
    wanted = _RETRY_S if reader.retry_ms is None else reader.retry_ms / 1000
    return min(wanted, _MAX_RETRY_S)
