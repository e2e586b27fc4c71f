"""HTTP as both HTTP wires need it: one origin, bounded sizes, no surprises."""

import asyncio
import ipaddress
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from msgspec import Struct

from portico.http1.errors import Http1Error, InvalidRequest
from portico.http1.headers import header_problem
from portico.http1.pool import MAX_CONNECTIONS, Pool
from portico.http1.response import Http1Response
from portico.http1.url import join_url, parse_url
from portico.wires.event_reader import TooLong
from portico.wires.http_error_body import own_words
from portico.wires.wire import MAX_MESSAGE, NO_HEADERS, Data, Failure

CONNECT_S = 10.0
ACCEPT_S = 30.0
"""How long a server may take to accept what it need not answer."""
MAX_REDIRECTS = 5
MAX_ERROR_BODY = 64 * 1024


class Site(Struct, frozen=True):
    """A URL, and what to show at its door."""

    url: str
    title: str = ""
    headers: Mapping[str, str] = NO_HEADERS
    token: str = ""
    spare_token: str = ""
    """A token to send only if the server wants one; never where somebody on the way could read it.
    """
    max_message: int = MAX_MESSAGE
    max_connections: int = MAX_CONNECTIONS
    """With a request under way, beside streams that stay open and messages that nobody answers."""

    @property
    def name(self) -> str:
        """The title, else the URL without anything secret."""
        if self.title:
            return self.title
        try:
            parts = urlsplit(self.url)
        except ValueError:  # it is asked all the same, so that whoever asks is told
            return "the server"
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class BrokenResponse(Exception):
    """An HTTP exchange that ended in a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.why)
        self.failure = failure


class HttpRequests:
    """Requests to one site. Redirects stay on its origin, and so do its headers."""

    def __init__(self, site: Site) -> None:
        """Raises TargetError if what is to be shown at the door cannot be."""
        self.site = site
        for name, value in (*site.headers.items(), ("authorization", site.token)):
            if why := header_problem(name, value):
                raise self.failure(f"cannot be contacted: {why}", "start").error()
        self.url = site.url
        self._loopback = is_loopback(site.url)
        self._token = site.token
        # What is meant for this machine does not go through a proxy.
        self._pool = Pool(
            site.headers,
            CONNECT_S,
            is_direct=self._loopback,
            max_connections=site.max_connections,
        )

    @asynccontextmanager
    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Data | None = None,
        begun: Http1Response | None = None,
        *,
        is_exempt: bool = False,
    ) -> AsyncGenerator[Http1Response, None]:
        """One request, unless it has begun; all that goes wrong with it, to the end of its answer,
        raises Broken. One that is apart does not count among the connections."""
        for _ in range(MAX_REDIRECTS + 1):
            try:
                response = begun or await self._pool.send(
                    method, url, self._with(headers), content, is_exempt=is_exempt
                )
                begun = None
                try:
                    await response.head()
                    if response.is_success:
                        yield response
                        return
                    if 300 <= response.status < 400:
                        url = self._redirected(response, url)
                        continue
                    if response.status == 401 and self._show_spare():
                        continue
                    raise BrokenResponse(await self._refusal(response))
                finally:
                    response.close()
            except TooLong as error:
                raise BrokenResponse(self.failure(str(error), "too_large")) from None
            except Http1Error as trouble:
                raise BrokenResponse(self.failure(str(trouble), "network")) from None
        raise BrokenResponse(self.failure("redirects in circles", "http"))

    def begin(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Data,
        on_ready: Callable[[Http1Response], None],
    ) -> Http1Response | None:
        """A request, if it can go out without waiting; `ready` has what came of it, and `send` goes
        on from there."""
        try:
            return self._pool.begin(method, url, self._with(headers), content, on_ready)
        except InvalidRequest:
            return None  # as `send` will say

    async def tell(self, url: str, headers: Mapping[str, str], content: Data) -> None:
        """Post what nobody answers; raises Broken, also if it is not accepted in time."""
        try:
            async with (
                asyncio.timeout(ACCEPT_S),
                # Apart: calls that are under way may wait for just this answer, or cancellation.
                self.send("POST", url, headers, content, is_exempt=True) as response,
            ):
                await self.body(response)
        except TimeoutError:
            why = f"did not accept a message within {ACCEPT_S:g} s"
            raise BrokenResponse(self.failure(why, "timeout")) from None

    async def body(self, response: Http1Response) -> bytes:
        """The whole body, within the limit."""
        return await self._bounded(response, self.site.max_message)

    def failure(self, why: str, kind: str = "failed", status: int | None = None) -> Failure:
        """A failure of this site."""
        return Failure(server=self.site.name, why=why, kind=kind, status=status)

    def nothing(self, response: Http1Response) -> Failure:
        """A success without an answer: a page, say, of a proxy that wants somebody to log in."""
        kind = _kind(response)
        if kind in ("", "application/json", "text/event-stream"):
            return self.failure("ended its answer before its result", "closed")
        why = f"answered with {kind[:60]}, which is no message"
        return self.failure(why, "http", response.status)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    def _with(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        return {**headers, "authorization": f"Bearer {self._token}"} if self._token else headers

    def _redirected(self, response: Http1Response, url: str) -> str:
        following = join_url(url, response.headers.get("location", ""))
        target = parse_url(following)
        # 301 and 302 may turn a POST into a GET, so only their successors are followed.
        if response.status not in (307, 308) or target.origin != parse_url(url).origin:
            why = f"redirects to {target} (HTTP {response.status}): use that URL if you trust it"
            raise BrokenResponse(self.failure(why, "http", response.status))
        if url == self.url:
            self.url = following
        return following

    def _show_spare(self) -> bool:
        is_private = self._loopback or self.site.url.startswith("https://")
        if self._token or not self.site.spare_token or not is_private:
            return False
        self._token = self.site.spare_token
        return True

    async def _refusal(self, response: Http1Response) -> Failure:
        body = await self._bounded(response, MAX_ERROR_BODY, cut=True)
        pause = _pause(response.headers.get("retry-after", ""))
        then = "" if pause is None else f"; try again in {pause} s"
        secrets = (*self.site.headers.values(), self._token)
        # What a missing token means, we say better.
        words = "" if response.status == 401 else own_words(_kind(response), body, secrets)
        return Failure(
            server=self.site.name,
            why=_meaning(response.status, response.reason, bool(self._token)) + words + then,
            kind="http",
            status=response.status,
            body=body,
            retry_after_s=pause,
        )

    async def _bounded(self, response: Http1Response, limit: int, cut: bool = False) -> bytes:
        if not cut:
            self.check_plain(response)
        body = bytearray()
        async for chunk in response:
            body += chunk
            if len(body) > limit:
                if cut:
                    break
                why = f"sent a message longer than {limit} bytes"
                raise BrokenResponse(self.failure(why, "too_large", response.status))
        return bytes(body[:limit] if len(body) > limit else body)

    def check_plain(self, response: Http1Response) -> None:
        """Refuse what is packed: we did not ask for it, and could not bound it."""
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            why = f"sent its answer packed with {encoding[:40]}, which it was asked not to do"
            raise BrokenResponse(self.failure(why, "http", response.status))


def is_stream(response: Http1Response) -> bool:
    """True for a stream of events."""
    return _kind(response) == "text/event-stream"


def _kind(response: Http1Response) -> str:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def is_loopback(url: str) -> bool:
    """True if a URL leads to this machine and nowhere else."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _pause(said: str) -> int | None:
    """The seconds of a Retry-After, which is a number or a date; None if it is neither."""
    if said.isascii() and said.isdigit():
        return int(said[:9])
    from email.utils import parsedate_to_datetime  # slow to import

    try:
        return max(0, round(parsedate_to_datetime(said).timestamp() - time.time()))
    except (ValueError, TypeError, OverflowError):
        return None


def _meaning(status: int, phrase: str, token_shown: bool) -> str:
    said = f"HTTP {status} {phrase}".strip()
    if status == 401:
        return f"refused the token ({said})" if token_shown else f"wants a token ({said})"
    if status == 403:
        return f"does not allow it ({said})"
    return f"answered {said}"
