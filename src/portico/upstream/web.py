"""HTTP as both HTTP wires need it: one origin, bounded sizes, no surprises."""

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct

from portico.upstream.headers import unfit_header
from portico.upstream.sse import TooLong
from portico.upstream.wire import MAX_MESSAGE, Failure

CONNECT_S = 10.0
ACCEPT_S = 30.0
"""How long a server may take to accept what it need not answer."""
MAX_REDIRECTS = 5
MAX_ERROR_BODY = 64 * 1024
_NO_HEADERS: Mapping[str, str] = {}


class Site(Struct, frozen=True):
    """A URL, and what to show at its door."""

    url: str
    title: str = ""
    headers: Mapping[str, str] = _NO_HEADERS
    token: str = ""
    spare_token: str = ""
    """A token to show only if the server asks for one; never sent beyond this machine."""
    max_message: int = MAX_MESSAGE

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


class Broken(Exception):
    """An HTTP exchange that ended in a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.why)
        self.failure = failure


class Web:
    """Requests to one site. Redirects stay on its origin, and so do its headers."""

    def __init__(self, site: Site) -> None:
        """Raises TargetError if what is to be shown at the door cannot be."""
        self.site = site
        for name, value in (*site.headers.items(), ("authorization", site.token)):
            if why := unfit_header(name, value):
                raise self.failure(f"cannot be asked: {why}", "start").error()
        self.url = site.url
        self._loopback = is_loopback(site.url)
        self._token = site.token
        self._client = httpx2.AsyncClient(
            # Identity, so that what is counted is what arrives: there is no bomb to unpack.
            headers={"accept-encoding": "identity", "user-agent": "portico", **site.headers},
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            follow_redirects=False,
            # What is meant for this machine does not go through a proxy.
            trust_env=not self._loopback,
        )

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response, None]:
        """One request; all that goes wrong with it, to the end of its answer, raises Broken."""
        for _ in range(MAX_REDIRECTS + 1):
            shown = {"authorization": f"Bearer {self._token}"} if self._token else {}
            try:
                async with self._client.stream(
                    method, url, headers={**headers, **shown}, content=content
                ) as response:
                    if response.is_success:
                        yield response
                        return
                    if 300 <= response.status_code < 400:
                        url = self._redirected(response, url)
                        continue
                    if response.status_code == 401 and self._show_spare():
                        continue
                    raise Broken(await self._refusal(response))
            except TooLong as error:
                raise Broken(self.failure(str(error), "too_large")) from None
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
                raise Broken(self.failure(_network(error), "network")) from None
        raise Broken(self.failure("redirects in circles", "http"))

    async def tell(self, url: str, headers: Mapping[str, str], content: bytes) -> None:
        """Post what nobody answers; raises Broken, also if it is not accepted in time."""
        try:
            async with (
                asyncio.timeout(ACCEPT_S),
                self.send("POST", url, headers, content) as response,
            ):
                await self.body(response)
        except TimeoutError:
            why = f"did not accept a message within {ACCEPT_S:g} s"
            raise Broken(self.failure(why, "timeout")) from None

    async def body(self, response: httpx2.Response) -> bytes:
        """The whole body, within the limit."""
        return await self._bounded(response, self.site.max_message)

    def failure(self, why: str, kind: str = "failed", status: int | None = None) -> Failure:
        """A failure of this site."""
        return Failure(server=self.site.name, why=why, kind=kind, status=status)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _redirected(self, response: httpx2.Response, url: str) -> str:
        target = httpx2.URL(url).join(response.headers.get("location", ""))
        # 301 and 302 may turn a POST into a GET, so only their successors are followed.
        if response.status_code not in (307, 308) or not _same_origin(httpx2.URL(url), target):
            why = (
                f"redirects to {target} (HTTP {response.status_code}): use that URL if you trust it"
            )
            raise Broken(self.failure(why, "http", response.status_code))
        if url == self.url:
            self.url = str(target)
        return str(target)

    def _show_spare(self) -> bool:
        if self._token or not self.site.spare_token or not self._loopback:
            return False
        self._token = self.site.spare_token
        return True

    async def _refusal(self, response: httpx2.Response) -> Failure:
        body = await self._bounded(response, MAX_ERROR_BODY, cut=True)
        return Failure(
            server=self.site.name,
            why=_meaning(response.status_code, response.reason_phrase, bool(self._token)),
            kind="http",
            status=response.status_code,
            body=body,
        )

    async def _bounded(self, response: httpx2.Response, limit: int, cut: bool = False) -> bytes:
        if not cut:
            self.check_plain(response)
        parts: list[bytes] = []
        size = 0
        async for chunk in response.aiter_raw():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                if cut:
                    break
                why = f"sent a message longer than {limit} bytes"
                raise Broken(self.failure(why, "too_large", response.status_code))
        return b"".join(parts)[:limit]

    def check_plain(self, response: httpx2.Response) -> None:
        """Refuse what is packed: we did not ask for it, and could not bound it."""
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            why = f"sent its answer packed with {encoding[:40]}, which it was asked not to do"
            raise Broken(self.failure(why, "http", response.status_code))


def is_stream(response: httpx2.Response) -> bool:
    """True for a stream of events."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "text/event-stream"


def is_loopback(url: str) -> bool:
    """True if a URL leads to this machine and nowhere else."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _network(error: Exception) -> str:
    if isinstance(error, httpx2.ConnectTimeout):
        return f"does not accept the connection within {CONNECT_S:g} s"
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return f"cannot be asked: {error}"
    if isinstance(error, httpx2.ConnectError):
        return f"cannot be reached: {error}"
    return f"broke the connection: {str(error) or type(error).__name__}"


def _meaning(status: int, phrase: str, token_shown: bool) -> str:
    said = f"HTTP {status} {phrase}".strip()
    if status == 401:
        return f"refused the token ({said})" if token_shown else f"wants a token ({said})"
    if status == 403:
        return f"does not allow it ({said})"
    return f"answered {said}"
