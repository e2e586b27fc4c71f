"""A URL taken apart: who is asked, and for what."""

import base64
import ipaddress
import re
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct

from portico.http1.errors import InvalidRequest

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[a-z0-9_~-]+(\.[a-z0-9_~-]+)*\.?")
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
# What the URL standard leaves as it is in a path and in a query; quote keeps letters by itself.
_IN_PATH = "!$%&'()*+,/:;=@[\\]^|"
_IN_QUERY = _IN_PATH + "?`{}"
_LONGEST = 65536
# Names that the standard of 2003, which Python has, would change into those of somebody else.
_CHANGED_SINCE = frozenset("\u00df\u03c2\u200c\u200d")


class Origin(Struct, frozen=True):
    """Whom to connect to."""

    scheme: str
    host: str
    """A name in ASCII, or an address without brackets."""
    port: int

    @property
    def authority(self) -> str:
        """Host and port, as they are written."""
        return f"{self.bracketed}:{self.port}"

    @property
    def shown(self) -> str:
        """The same without the port that goes without saying."""
        return self.bracketed if self.port == _PORTS[self.scheme] else self.authority

    @property
    def bracketed(self) -> str:
        """The host; an address is in brackets, and its zone is nobody else's business."""
        return f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host

    @property
    def verified(self) -> str:
        """The name that a certificate must be for."""
        return self.host.partition("%")[0].rstrip(".")


class RequestTarget(Struct, frozen=True):
    """What a URL says."""

    origin: Origin
    path: str
    """Path and query, with nothing in them that a request could not carry."""
    login: str = ""
    """The Basic credentials of its user and password, if it has them."""

    def __str__(self) -> str:
        """The URL without anything secret."""
        return f"{self.origin.scheme}://{self.origin.shown}{self.path}"


def parse(url: str) -> RequestTarget:
    """Take a URL apart; raises Unfit, without its secrets."""
    if len(url) > _LONGEST:
        raise InvalidRequest(f"its URL is longer than {_LONGEST} characters")
    if any(char < " " or char == "\x7f" for char in url):
        raise InvalidRequest("its URL has characters that nobody can see")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InvalidRequest("its URL has no host and port that could be understood") from None
    scheme = parts.scheme
    if scheme not in _PORTS:
        raise InvalidRequest("its URL does not begin with http:// or https://")
    if not host:
        raise InvalidRequest("its URL names no host")
    path = _quoted(_without_dots(parts.path or "/"), _IN_PATH)
    query = f"?{_quoted(parts.query, _IN_QUERY)}" if parts.query else ""
    origin = Origin(scheme, _host(host), port or _PORTS[scheme])
    return RequestTarget(origin, path + query, _login(parts.username, parts.password))


def join(url: str, other: str) -> str:
    """Where a URL leads that was found at another; raises Unfit."""
    try:
        return urljoin(url, other)
    except ValueError:
        raise InvalidRequest("the URL that it names cannot be understood") from None


def _host(host: str) -> str:
    if ":" in host:
        host = unquote(host)  # a zone is written %25eth0
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise InvalidRequest("its URL has an address that is none") from None
        return host
    if not host.isascii():
        if not _CHANGED_SINCE.isdisjoint(host):
            raise InvalidRequest("its name has letters with two meanings: write it as xn--...")
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise InvalidRequest("its name cannot be written in ASCII") from None
    if not _NAME.fullmatch(host):
        raise InvalidRequest("its URL has a host that is no name")
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
