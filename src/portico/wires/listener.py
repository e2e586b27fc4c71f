"""The stream of its own on which a legacy server at a URL talks unasked."""

import asyncio
from collections.abc import Awaitable, Callable

from portico.http1.response import Http1Response
from portico.wires.event_reader import EventReader
from portico.wires.http_requests import BrokenResponse, HttpRequests, is_stream
from portico.wires.session_headers import SessionHeaders

_RETRY_S = 1.0
_MAX_RETRY_S = 30.0
_SERVER_FAULT = 500
_NO_SESSION = 404
"""Also what a server may say that never had such a stream; not one that had."""
_FIRST_S = 0.25
"""How long the first requests wait for a server to hear that it is listened to: what it asks before
that is lost, since it has nowhere to ask it."""


class Listener:
    """Keeps the stream open, as often as it is cut; a server that has none says so."""

    def __init__(
        self,
        web: HttpRequests,
        naming: SessionHeaders,
        read: Callable[[Http1Response, EventReader, bytes], Awaitable[bool]],
        forgotten: Callable[[], None],
    ) -> None:
        """`read` takes in a stream to its end; `forgotten` is told if its session is no more."""
        self._web = web
        self._naming = naming
        self._read = read
        self._forgotten = forgotten
        self._answered = asyncio.Event()
        self.task = asyncio.create_task(self._listen())

    @property
    def is_new(self) -> bool:
        """True until the server has answered, or had its time to."""
        return not self._answered.is_set()

    async def answered(self) -> None:
        """Wait until it is not new any more."""
        try:
            async with asyncio.timeout(_FIRST_S):
                await self._answered.wait()
        except TimeoutError:
            self._answered.set()

    async def _listen(self) -> None:
        web = self._web
        reader = EventReader(web.site.max_message)
        barren = 0
        is_offered = False
        while True:
            headers = {**self._naming.common(), "accept": "text/event-stream"}
            if reader.last_id:
                headers["last-event-id"] = reader.last_id
            before = reader.count
            try:
                async with web.send("GET", web.url, headers, is_exempt=True) as response:
                    self._answered.set()
                    if not is_stream(response):
                        return
                    is_offered = True
                    await self._read(response, reader, b"")
            except BrokenResponse as broken:
                self._answered.set()
                status = broken.failure.status
                if status is not None and status < _SERVER_FAULT:
                    if status == _NO_SESSION and is_offered and self._naming.session:
                        self._forgotten()
                    return  # 405: it offers none; others: it offers none to us
            # Longer and longer, as long as nothing comes of it.
            pause = delay_s(reader) * 2 ** min(barren, 10)
            barren = 0 if reader.count > before else barren + 1
            await asyncio.sleep(min(pause, _MAX_RETRY_S))


def delay_s(reader: EventReader) -> float:
    """How long to wait before a stream is taken up again."""
    wanted = _RETRY_S if reader.retry_ms is None else reader.retry_ms / 1000
    return min(wanted, _MAX_RETRY_S)
