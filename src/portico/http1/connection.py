"""One connection that speaks HTTP/1.1, as a client: a request, its answer, then the next."""

import asyncio
import re
import select
import sys
from collections.abc import Callable
from math import inf
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from portico.http1.errors import ConnectionLost, Http1Error, words
from portico.http1.response import SMALL, Http1Response

MAX_HEAD = 64 * 1024
MAX_HEADERS = 256
_SLICE = 256 * 1024
_BODILESS = (204, 304)
_KEPT_S = re.compile(r"(?:^|,)\s*timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE | re.ASCII)
_MARGIN_S = 1.0
"""A request must arrive before the server closes the connection, not only leave."""


class MalformedResponse(Exception):
    """What a server sent is not what an answer looks like."""


class Http1Connection(asyncio.Protocol):
    """Asks one thing at a time. Nothing is ever sent twice."""

    def __init__(
        self, rests: Callable[["Http1Connection"], None], gone: Callable[["Http1Connection"], None]
    ) -> None:
        """`rests` is told when it may be asked again, `gone` when it is closed."""
        self.idle_since = 0.0
        self.rest_s = inf
        """How long the server keeps it while nothing is asked, less a margin."""
        self.give_back: Callable[[], None] | None = None
        """Gives back its place, if it is one of those that its pool counts."""
        self._rests = rests
        self._gone = gone
        self.transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self._parser: HttpResponseParser | None = None
        self._response: Http1Response | None = None
        self._begin_head()
        self._keeps = False  # may it be asked again after this answer?
        self._until_end = False  # is the end of the connection the end of the body?
        self._left = 0  # of a large body, for which nothing has to be parsed
        self._pieces: list[bytes] = []  # of a body, found in what is being parsed
        self._is_paused = False
        self._is_full = False  # does the server not read what it is sent?
        self._unsent: memoryview | None = None

    def ask(
        self, head: bytes, body: bytes, ready: Callable[[Http1Response], None] | None = None
    ) -> Http1Response:
        """Send a request; what is large goes out as fast as the server reads it."""
        assert self._response is None
        response = Http1Response(self, ready)
        if self.transport is None:  # it was accepted, and hung up on at once
            response.fail(ConnectionLost("it ended without an answer"))
            return response
        self._response = response
        self._begin_head()
        self._silent = self._left = 0
        self._until_end = self._keeps = False
        if len(body) <= SMALL:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self._unsent = memoryview(body)
            self._push()
        return response

    @property
    def is_open(self) -> bool:
        """True until it is closed, by whomever."""
        return self.transport is not None

    def is_alive(self) -> bool:
        """True if it can be asked: neither closed nor about to be told that it is."""
        assert self.transport is not None
        if self.transport.is_closing():
            return False
        # Nothing was asked, so whatever is there to be read is no answer.
        line = self.transport.get_extra_info("socket")
        if sys.platform == "win32":
            return not select.select([line], [], [], 0)[0]
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(line.fileno(), select.POLLIN)
        return not self._poll.poll(0)

    def abort(self) -> None:
        """Close it; who still waits for an answer is told."""
        if self.transport is not None:
            self.transport.abort()

    # What an answer asks of it.

    def resume(self) -> None:
        """There is room for more of the body."""
        if self._is_paused:
            self._is_paused = False
            if self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def leave(self) -> None:
        """It does not count any more, though its answer may go on."""
        if self.give_back is not None:
            give_back, self.give_back = self.give_back, None
            give_back()

    def drop(self, response: Http1Response) -> None:
        """The rest of an answer is not wanted, and there is no other way to be rid of it."""
        if self._response is response:
            self._response = None
            self.abort()

    # What the event loop tells it.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        # Transports of uvloop are of no class of asyncio's.
        self.transport = cast("asyncio.Transport", transport)
        self._parser = self._new_parser()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        # The parser knows our methods: without it nothing is left that goes in a circle.
        self.transport = self._parser = self._poll = self._unsent = None
        self._gone(self)
        if self._response is not None:
            self._ended(self._response, None if exc is None else ConnectionLost(words(exc)))

    def eof_received(self) -> None:
        """The server will send no more, which ends a body that has no other end."""
        response = self._response
        if response is not None:
            response.is_whole = self._until_end
            self._ended(response, None)

    def data_received(self, data: bytes) -> None:
        """More of an answer."""
        response = self._response
        if response is None:  # an answer to nothing: whatever it is, nobody can tell any more
            self.abort()
            return
        if self._left:
            self._add_plain(response, data)
        else:
            self._parse(response, data)
        self._settle(response)

    def _parse(self, response: Http1Response, data: bytes) -> None:
        assert self._parser is not None
        self._silent += len(data)
        try:
            self._parser.feed_data(data)
            if self._silent > MAX_HEAD and not response.is_whole:
                raise MalformedResponse(f"its headers are longer than {MAX_HEAD} bytes")
        except (HttpParserError, HttpParserUpgrade, MalformedResponse) as error:
            self._keeps = False
            response.fail(_garbage(error))
        if self._pieces:
            # Joined: a body in chunks of one byte would fill the memory with their objects.
            response.add(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
            self._pieces = []

    def _add_plain(self, response: Http1Response, data: bytes) -> None:
        """More of a body of known length, as it is: to copy what is large takes its time."""
        piece = data if len(data) <= self._left else data[: self._left]
        response.add(piece)
        self._left -= len(piece)
        if not self._left:
            assert self._parser is not None
            response.is_whole = True
            self._keeps = self._parser.should_keep_alive() and len(piece) == len(data)
            self._parser = self._new_parser()  # the old one waits for the body still

    def pause_writing(self) -> None:
        """The server does not read."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The server reads."""
        self._is_full = False
        self._push()

    # What the parser finds.

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._response is None or self._response.is_whole:
            raise MalformedResponse("it goes on after its end")

    def on_status(self, status: bytes) -> None:
        """The words beside the status, or some of them."""
        self._reason += status
        if len(self._reason) > MAX_HEAD:
            raise MalformedResponse(f"its headers are longer than {MAX_HEAD} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; also one that comes after the body, which nobody asked for."""
        self._count += 1
        self._size += len(name) + len(value)
        if self._count > MAX_HEADERS or self._size > MAX_HEAD:
            raise MalformedResponse(
                f"it has more than {MAX_HEADERS} headers or {MAX_HEAD} bytes of them"
            )
        response = self._response
        if response is None or response.status:
            return
        key = name.decode("latin-1").lower()
        text = _text(value).strip()
        headers = self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """The head is there."""
        response, parser = self._response, self._parser
        assert response is not None
        assert parser is not None
        status = parser.get_status_code()
        if status < 200:
            if status == 101:
                raise MalformedResponse("it changes to another protocol, which nobody asked for")
            return
        headers = self._headers
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            raise MalformedResponse("it is packed in a way that nobody asked for")
        length = headers.get("content-length")
        self._until_end = coding is None and length is None and status not in _BODILESS
        size = 0 if status in _BODILESS else int(length or 0)
        self._left = size if size > SMALL and coding is None else 0
        response.is_small = not self._until_end and coding is None and size <= SMALL
        if "keep-alive" in headers and (kept := _KEPT_S.search(headers["keep-alive"])):
            kept_s = int(kept[1])
            self.rest_s = kept_s - min(_MARGIN_S, kept_s / 2)
        response.headers = headers
        response.reason = _text(self._reason)
        response.status = status

    def on_body(self, body: bytes) -> None:
        """More of the body."""
        self._silent = 0
        if self._left:
            self._left -= len(body)
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """All of it is there, unless it only was a word in between."""
        assert self._response is not None
        assert self._parser is not None
        if self._response.status:
            self._response.is_whole = True
            self._keeps = self._parser.should_keep_alive()
        else:
            self._begin_head()

    def _new_parser(self) -> HttpResponseParser:
        parser = HttpResponseParser(self)
        # Old servers do these, all clients read them. They are dangerous to whom answers are passed
        # on to, byte by byte; here nobody reads the bytes but the parser.
        parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        return parser

    def _begin_head(self) -> None:
        self._headers: dict[str, str] = {}
        self._reason = b""
        self._count = self._size = 0

    def _settle(self, response: Http1Response) -> None:
        """See what is to be done after an answer grew, ended or failed; then tell its reader."""
        if response.is_over():
            self._response = None
            if self._keeps and self._unsent is None and self.transport is not None:
                self._rests(self)
            else:
                self.abort()
        elif response.is_full() and not self._is_paused:
            assert self.transport is not None
            self._is_paused = True
            self.transport.pause_reading()
        response.wake()

    def _ended(self, response: Http1Response, trouble: Http1Error | None) -> None:
        self._keeps = False
        cut = "it ended within the answer" if response.status else "it ended without an answer"
        response.fail(trouble or ConnectionLost(cut))
        self._settle(response)

    def _push(self) -> None:
        """Send the next pieces of a large request, as long as they are taken."""
        while self._unsent is not None and not self._is_full and self.transport is not None:
            piece, rest = self._unsent[:_SLICE], self._unsent[_SLICE:]
            self._unsent = rest if len(rest) else None
            self.transport.write(piece)


def _garbage(error: Exception) -> ConnectionLost:
    cause = error.__context__ if isinstance(error.__context__, MalformedResponse) else error
    if isinstance(cause, MalformedResponse):
        return ConnectionLost(f"its answer is none: {cause}")
    return ConnectionLost(f"its answer is no HTTP ({cause})")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
