"""The HTTP client of both HTTP wires: one origin, its credentials, redirects and size limits."""

import asyncio
import ipaddress
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from msgspec import Struct

from portico.core.http1.errors import Http1Error, InvalidRequest
from portico.core.http1.headers import header_problem
from portico.core.http1.pool import MAX_CONNECTIONS, Pool
from portico.core.http1.response import Http1Response
from portico.core.http1.url import join_url, parse_url
from portico.upstream.auth.flow import IssuerUnavailable, LoginError, LoginNeeded, ScopesRefused
from portico.upstream.wires.credentials import NO_CREDENTIALS, Credentials, StaticToken, login_of
from portico.upstream.wires.event_reader import TooLong
from portico.upstream.wires.http_error_body import error_message
from portico.upstream.wires.wire import LOGIN, MAX_MESSAGE, NO_HEADERS, Data, Failure

CONNECT_S = 10.0
ACCEPT_S = 30.0
"""How long a server may take to accept a notification."""
MAX_REDIRECTS = 5
MAX_ERROR_BODY = 64 * 1024
NO_RESULT = "ended its response without a result"
_TRIES = 2
"""Another account may be logged in while the credentials of one are read."""


def no_spare_token(url: str) -> tuple[str, str]:
    """Return no token."""
    return "", ""


class Site(Struct, frozen=True):
    """The URL of a server, with the headers and credentials to send."""

    url: str
    title: str = ""
    headers: Mapping[str, str] = NO_HEADERS
    credentials: Credentials = NO_CREDENTIALS
    spare_token: Callable[[str], tuple[str, str]] = no_spare_token
    """Returns the URL to use if a server at this URL requires a token, and the token; both are
    empty if it must get none."""
    max_message: int = MAX_MESSAGE
    max_connections: int = MAX_CONNECTIONS
    """Connections with a pending request; open streams and notifications are exempt."""

    @property
    def name(self) -> str:
        """The title, else the URL without its credentials."""
        if self.title:
            return self.title
        try:
            parts = urlsplit(self.url)
        except ValueError:  # the first request will report it
            return "the server"
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class BrokenResponse(Exception):
    """An HTTP request failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.why)
        self.failure = failure


class HttpClient:
    """Sends requests to one site. It follows redirects within its origin only."""

    def __init__(self, site: Site) -> None:
        """Raises TargetError if a header or the token is not valid."""
        self.site = site
        problems = [header_problem(name, value) for name, value in site.headers.items()]
        if isinstance(site.credentials, StaticToken):
            problems.append(site.credentials.problem)
        if why := next(filter(None, problems), ""):
            raise self.failure(f"cannot be contacted: {why}", "start").error()
        self.url = site.url
        self._sent = ""
        """The credentials of the last request."""
        self._sends_spare_token = False
        self._pool = self._new_pool()

    @asynccontextmanager
    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Data | None = None,
        started: Http1Response | None = None,
        *,
        is_exempt: bool = False,
    ) -> AsyncGenerator[Http1Response, None]:
        """Send a request, or continue a started one. Any failure up to the end of the response
        raises BrokenResponse. An exempt request does not count against the limit of connections."""
        is_last = False  # a request that was refused is sent once more
        for _ in range(MAX_REDIRECTS + 1):
            try:
                if started is None:
                    await self._await_credentials(url)
                sent = self._sent if started is None else started.sent_as
                response = started or await self._pool.send(
                    method, url, headers, content, is_exempt=is_exempt
                )
                started = None
                try:
                    await response.head()
                    if response.is_success:
                        yield response
                        return
                    if 300 <= response.status < 400:
                        url = self._redirected(response, url)
                        continue
                    if response.status == 401 and (token_url := self._use_spare_token(url)):
                        if parse_url(token_url).origin != parse_url(url).origin:
                            await self._pool.close()
                            self._pool = self._new_pool()
                        url = token_url
                        continue
                    if await self._may_resend(response, sent) and not is_last:
                        is_last = True
                        continue
                    raise BrokenResponse(await self._error_response(response))
                finally:
                    response.close()
            except TooLong as error:
                raise BrokenResponse(self.failure(str(error), "too_large")) from None
            except Http1Error as error:
                raise BrokenResponse(self.failure(str(error), "network")) from None
            except LoginError as error:
                raise BrokenResponse(self._login_failure(error)) from None
        raise BrokenResponse(
            self.failure(f"redirects more than {MAX_REDIRECTS} times; check its URL", "http")
        )

    def begin(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Data,
        on_ready: Callable[[Http1Response], None],
    ) -> Http1Response | None:
        """Start a request if a connection is idle; `on_ready` gets its response, with which `send`
        continues."""
        if not self._use_credentials(url):
            return None  # `send` will wait for them
        try:
            response = self._pool.begin(method, url, headers, content, on_ready)
        except InvalidRequest:
            return None  # `send` will report it
        if response is not None:
            response.sent_as = self._sent
        return response

    async def notify(self, url: str, headers: Mapping[str, str], content: Data) -> None:
        """Post a message without a response; raises BrokenResponse, also after a timeout."""
        try:
            async with (
                asyncio.timeout(ACCEPT_S),
                # Exempt: pending calls may depend on this very answer or cancellation.
                self.send("POST", url, headers, content, is_exempt=True) as response,
            ):
                await self.body(response)
        except TimeoutError:
            why = f"did not accept a message within {ACCEPT_S:g} s"
            raise BrokenResponse(self.failure(why, "timeout")) from None

    async def body(self, response: Http1Response) -> bytes:
        """Return the whole body, up to the limit."""
        return await self._read_body(response, self.site.max_message)

    def failure(self, why: str, kind: str = "failed", status: int | None = None) -> Failure:
        """Return a failure of this server."""
        return Failure(server=self.site.name, why=why, kind=kind, status=status)

    def missing_result(self, response: Http1Response) -> Failure:
        """Return the failure of a 2xx response without a message, such as a proxy's login page."""
        kind = _media_type(response)
        if kind in ("", "application/json", "text/event-stream"):
            return self.failure(NO_RESULT, "closed")
        why = f"returned {kind[:60]} instead of an MCP message; check its URL"
        return self.failure(why, "http", response.status)

    async def close(self) -> None:
        """Close all connections; a refresh of the login finishes before."""
        login = login_of(self.site)
        if login is not None:
            await login.close()
        await self._pool.close()

    def _new_pool(self) -> Pool:
        return Pool(
            self.site.headers,
            CONNECT_S,
            # Requests to this machine do not go through a proxy.
            is_direct=is_loopback(self.site.url),
            max_connections=self.site.max_connections,
        )

    def _use_credentials(self, url: str) -> bool:
        """Send the credentials that are ready now; False if they must be waited for."""
        credentials = self.site.credentials
        value = credentials.header()
        if self._sends_spare_token:  # another server may be there by now
            token = self.site.spare_token(url)[1]
            value = f"Bearer {token}" if token else ""
        if value is None:
            return False
        if value != self._sent:
            self._sent = value
            self._pool.use_credentials(credentials.name, value)
        return True

    async def _await_credentials(self, url: str) -> None:
        """Wait until the credentials are ready; raises LoginError."""
        for _ in range(_TRIES):
            if self._use_credentials(url):
                return
            await self.site.credentials.obtain()
        if not self._use_credentials(url):  # never those of the request before
            raise LoginError("has another login now; try again")

    async def _may_resend(self, response: Http1Response, sent: str) -> bool:
        """True if a refused request can be sent with other credentials; raises LoginError."""
        if response.status not in (401, 403) or self._sends_spare_token:
            return False
        credentials = self.site.credentials
        now = credentials.header()
        if response.status == 401 and now and now != sent:
            return True  # they were replaced meanwhile
        return await credentials.refused(
            response.status, response.headers.get("www-authenticate", "")
        )

    def _login_failure(self, error: LoginError) -> Failure:
        if isinstance(error, IssuerUnavailable):
            return self.failure(
                f"cannot be used now: its login is not refreshed: {error}", "network"
            )
        if isinstance(error, ScopesRefused):
            return Failure(
                server=self.site.name, why=str(error), kind="http", status=403, scopes=error.scopes
            )
        if not isinstance(error, LoginNeeded):
            return self.failure(str(error), LOGIN)
        return Failure(
            server=self.site.name,
            why=str(error),
            kind=LOGIN,
            command=error.command,
            scopes=error.scopes,
        )

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

    def _use_spare_token(self, url: str) -> str:
        """Send the spare token from now on; return the URL to use, empty if it must not be sent."""
        if self._sent or self._sends_spare_token:
            return ""
        following, token = self.site.spare_token(url)
        if not token:
            return ""
        self._sends_spare_token = True
        if url == self.url:
            self.url = following
        return following

    async def _error_response(self, response: Http1Response) -> Failure:
        body = await self._read_body(response, MAX_ERROR_BODY, truncates=True)
        retry_after_s = _retry_after_s(response.headers.get("retry-after", ""))
        then = "" if retry_after_s is None else f"; try again in {retry_after_s} s"
        secrets = (*self.site.headers.values(), self._sent)
        # Our own text for a missing token is clearer.
        words = (
            "" if response.status == 401 else error_message(_media_type(response), body, secrets)
        )
        return Failure(
            server=self.site.name,
            why=_status_text(response.status, response.reason, bool(self._sent)) + words + then,
            kind="http",
            status=response.status,
            body=body,
            retry_after_s=retry_after_s,
        )

    async def _read_body(
        self, response: Http1Response, limit: int, truncates: bool = False
    ) -> bytes:
        if not truncates:
            self.check_encoding(response)
        body = bytearray()
        async for chunk in response:
            body += chunk
            if len(body) > limit:
                if truncates:
                    break
                why = f"sent a message longer than {limit} bytes"
                raise BrokenResponse(self.failure(why, "too_large", response.status))
        return bytes(body[:limit] if len(body) > limit else body)

    def check_encoding(self, response: Http1Response) -> None:
        """Reject a compressed response: we did not request it, and its size is not bounded."""
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            why = f"sent a response compressed with {encoding[:40]}, though Portico accepts none"
            raise BrokenResponse(self.failure(why, "http", response.status))


def is_stream(response: Http1Response) -> bool:
    """True for an event stream."""
    return _media_type(response) == "text/event-stream"


def _media_type(response: Http1Response) -> str:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def is_loopback(url: str) -> bool:
    """True if a URL points to this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _retry_after_s(text: str) -> int | None:
    """Return the seconds of a Retry-After, which is a number or a date; None if it is neither."""
    if text.isascii() and text.isdigit():
        return int(text[:9])
    from email.utils import parsedate_to_datetime  # slow to import

    try:
        return max(0, round(parsedate_to_datetime(text).timestamp() - time.time()))
    except (ValueError, TypeError, OverflowError):
        return None


def _status_text(status: int, phrase: str, sent_token: bool) -> str:
    text = f"HTTP {status} {phrase}".strip()
    if status == 401:
        return f"{'rejected the' if sent_token else 'requires a'} token ({text})"
    if status == 403:
        return f"denied access ({text})"
    return f"returned {text}"
