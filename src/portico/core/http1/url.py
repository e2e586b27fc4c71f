"""URLs, parsed: the origin to connect to, and the target of the request."""

import base64
import ipaddress
import re
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct

from portico.core.http1.errors import InvalidRequest

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[a-z0-9_~-]+(\.[a-z0-9_~-]+)*\.?")
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
# Characters that the URL standard does not escape in a path or query, besides letters.
_IN_PATH = "!$%&'()*+,/:;=@[\\]^|"
_IN_QUERY = _IN_PATH + "?`{}"
MAX_URL = 65536
# IDNA 2003, which Python implements, maps these characters to other names than IDNA 2008 does.
_REMAPPED = frozenset("\u00df\u03c2\u200c\u200d")


class Origin(Struct, frozen=True):
    """The scheme, host and port to connect to."""

    scheme: str
    host: str
    """A name in ASCII, or an address without brackets."""
    port: int

    @property
    def authority(self) -> str:
        """Host and port, as in a URL."""
        return f"{self.bracketed}:{self.port}"

    @property
    def shown(self) -> str:
        """The same without the default port."""
        return self.bracketed if self.port == _PORTS[self.scheme] else self.authority

    @property
    def bracketed(self) -> str:
        """The host; an IPv6 address is in brackets and without its zone."""
        return f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host

    @property
    def verified(self) -> str:
        """The name that a certificate must be for."""
        return self.host.partition("%")[0].rstrip(".")


class RequestTarget(Struct, frozen=True):
    """The parts of a URL that a request needs."""

    origin: Origin
    path: str
    """Path and query, escaped."""
    login: str = ""
    """The Basic credentials of its user and password, if any."""

    def __str__(self) -> str:
        """Return the URL without its credentials."""
        return f"{self.origin.scheme}://{self.origin.shown}{self.path}"


def parse_url(url: str) -> RequestTarget:
    """Parse a URL; raises InvalidRequest, with a text without credentials."""
    if len(url) > MAX_URL:
        raise InvalidRequest(f"its URL is longer than {MAX_URL} characters")
    if any(char < " " or char == "\x7f" for char in url):
        raise InvalidRequest("its URL contains control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidRequest("the host or port in its URL is not valid") from None
    scheme = parts.scheme
    if scheme not in _PORTS:
        raise InvalidRequest("its URL must begin with http:// or https://")
    if not host:
        raise InvalidRequest("its URL has no host")
    path = _quoted(_without_dots(parts.path or "/"), _IN_PATH)
    query = f"?{_quoted(parts.query, _IN_QUERY)}" if parts.query else ""
    origin = Origin(scheme, _host(host), port or _PORTS[scheme])
    return RequestTarget(origin, path + query, _login(parts.username, parts.password))


def join_url(url: str, other: str) -> str:
    """Resolve a URL that a response refers to; raises InvalidRequest."""
    try:
        return urljoin(url, other)
    except ValueError:
        raise InvalidRequest("it refers to a URL that is not valid") from None


def _host(host: str) -> str:
    if ":" in host:
        host = unquote(host)  # a zone is written %25eth0
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise InvalidRequest("the IPv6 address in its URL is not valid") from None
        return host
    if not host.isascii():
        if not _REMAPPED.isdisjoint(host):
            raise InvalidRequest("the host name in its URL is ambiguous; write it as xn--...")
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise InvalidRequest("the host name in its URL has no ASCII form") from None
    if not _NAME.fullmatch(host):
        raise InvalidRequest("the host name in its URL is not valid")
    return host


def _quoted(text: str, kept: str) -> str:
    return _STRAY_PERCENT.sub("%25", quote(text, safe=kept))


def _without_dots(path: str) -> str:
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _login(user: str | None, password: str | None) -> str:
    if not user and not password:
        return ""
    pair = f"{unquote(user or '')}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
