"""Checks Host, Origin, token and header limits before anything else reads a request."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from hmac import compare_digest
from string import ascii_letters, digits

from portico.core.http1.port import CLOSE, JSON_TYPE, TEXT_TYPE, Scope
from portico.core.model.errors import RegistrationError
from portico.core.protocol.codec import encode
from portico.edge.transport.http_limits import HttpLimits
from portico.edge.transport.reply import Reply, declared_too_large, refusal

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream"

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST_CHARACTERS = frozenset(ascii_letters + digits + "-._:[]%")
_SCHEMES = ("http", "https")
_SAME_SITE = (b"same-origin", b"none")
"""Sec-Fetch-Site of our own pages, and of an address that a user typed."""
_OAUTH_PATHS = ("/register", "/authorize", "/token")
_FORWARDED = (b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_PORTS = 16  # bounds memory where a server takes the port from the request


class Head(dict[str, str]):
    """A request's `Mcp-*` headers as text, and all of its headers as `raw`.

    A repeated header has both values, so that it matches nothing.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        for name, value in raw.items():
            if name[:4] == b"mcp-":
                # A non-ASCII header must not equal anything in a body, hence no Latin-1.
                text = value.strip(b" \t").decode("ascii", "surrogateescape")
                self[name.decode("ascii", "replace")] = text
        self.raw = raw


class Guard:
    """The access checks of one app."""

    def __init__(
        self,
        limits: HttpLimits,
        *,
        token: str | None = None,
        token_place: str = "",
        hosts: Iterable[str] | None = (),
        origins: Iterable[str] | None = (),
    ) -> None:
        """Allow `hosts` besides loopback, and `origins` besides those of the hosts; None is any.

        A host without a port is also allowed with the port we listen on. `token_place` is where a
        user of this machine finds the token.
        """
        self._limits = limits
        if token is not None and (not token or token != "".join(token.split())):
            # Such as an unset variable, or the last line of a file: it would admit all, or none.
            raise RegistrationError("token must be a single word, or None to require none")
        self._token = None if token is None else token.encode()
        self._token_place = token_place
        self.other_tokens = b""
        """The beginning of tokens that authorize no one here, even if none is required."""
        self._hosts = _normalize(hosts, "hosts", _normalize_host)
        self._origins = _normalize(origins, "origins", _normalize_origin)
        self._allowed: dict[int | None, tuple[frozenset[bytes], frozenset[bytes]]] = {}

    def admit(self, scope: Scope, *, is_probe: bool = False) -> Head | Reply:
        """Return the headers if limits, Host and Origin allow them, else a refusal.

        A probe over HTTP/1.0 needs no Host: load balancers send none, and browsers always do.
        """
        headers = scope["headers"]
        limits = self._limits
        raw: dict[bytes, bytes] = dict(headers)
        if len(raw) != len(headers):
            raw = _join_repeated(headers)
        size = len(b"".join(raw)) + len(b"".join(raw.values()))
        if size > limits.header_bytes or len(headers) > limits.header_count:
            most = f"{limits.header_count} headers and {limits.header_bytes} bytes"
            return refusal(431, f"the headers are too large: the limit is {most}", CLOSE)
        if is_probe and b"host" not in raw and scope.get("http_version") == "1.0":
            raw[b"host"] = LOOPBACK[0].encode()
        return self._refuse_host(scope, raw) or Head(raw)

    def is_authorized(self, head: Head) -> bool:
        """True if the head carries the token, or none is required."""
        if self._token is None:
            return not self.other_tokens or not self.other_token(head)
        return compare_digest(_bearer(head), self._token)

    def other_token(self, head: Head) -> str:
        """Return the token of the head if it begins as other tokens do; else an empty string."""
        given = _bearer(head)
        others = self.other_tokens
        return given.decode("latin-1") if others and given.startswith(others) else ""

    def challenge(self, scope: Scope, head: Head) -> Reply:
        """Return 401 and how to send the token: the same at every path, even an unknown one."""
        given = b"authorization" in head.raw
        why = self._token_help(scope, head, given)
        challenge = b'Bearer realm="portico"' + (b', error="invalid_token"' if given else b"")
        header = (b"www-authenticate", challenge)
        path: str = scope["path"]
        if "/.well-known/" in path or path.endswith(_OAUTH_PATHS):
            # Clients request these after a 401, and show their users this description.
            body = encode({"error": "access_denied", "error_description": why})
            return Reply(401, body, (JSON_TYPE, header))
        if _prefers_text(head.raw.get(b"accept", b"")):
            return Reply(401, f"{why}\n".encode(), (TEXT_TYPE, header))
        return refusal(401, why, header)

    def _token_help(self, scope: Scope, head: Head, given: bool) -> str:
        why = "the bearer token is not valid" if given else "a bearer token is required"
        where = ""
        if self._token_place and _is_on_this_machine(scope, head.raw):
            where = f" TOKEN is {self._token_place}."
        return (
            f"{why}: send the header `Authorization: Bearer TOKEN` with every request.{where} "
            "OAuth login is not supported."
        )

    def refuse_body(self, head: Head) -> Reply | None:
        """Return a refusal if the headers rule out reading the body."""
        raw = head.raw
        content_type = raw.get(b"content-type", b"")
        if content_type != JSON and not is_json(content_type):
            return refusal(415, "Content-Type must be application/json")
        if raw.get(b"content-encoding", b"identity") != b"identity":
            return refusal(415, "Content-Encoding is not supported")
        coding = raw.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            return refusal(501, "Transfer-Encoding must be chunked", CLOSE)
        length = raw.get(b"content-length")
        return None if length is None else declared_too_large(length, self._limits)

    def _refuse_host(self, scope: Scope, raw: dict[bytes, bytes]) -> Reply | None:
        origin = raw.get(b"origin")
        if self._token is None and self._is_cross_site(raw, origin):
            return refusal(403, "cross-site requests are not allowed")
        if self._hosts is None and (origin is None or self._origins is None):
            return None
        server = scope.get("server")
        port = server[1] if server else None
        hosts, origins = self._allowed.get(port) or self._allow(port)
        host = raw.get(b"host", b"").lower()
        if self._hosts is not None and host not in hosts:
            return refusal(403, "this Host is not allowed: add it to the server's hosts")
        if origin is None or self._origins is None or origin.lower() in origins:
            return None
        if self._hosts is None and origin.lower().partition(b"://")[2] == host != b"":
            return None  # where any Host is allowed, we can only require the same origin
        return refusal(403, "this Origin is not allowed: add it to the server's origins")

    def _is_cross_site(self, raw: dict[bytes, bytes], origin: bytes | None) -> bool:
        """True if a browser sent this for a page of another origin that is not allowed.

        Not all requests from pages carry an Origin: those for an image or a script do not.
        """
        site = raw.get(b"sec-fetch-site")
        if site is None or site in _SAME_SITE or self._origins is None:
            return False
        return origin is None or origin.lower().decode("latin-1") not in self._origins

    def _allow(self, port: int | None) -> tuple[frozenset[bytes], frozenset[bytes]]:
        local = {f"{name}:{port}" for name in LOOPBACK}
        hosts = {*LOOPBACK, *local}
        origins = {f"{scheme}://{name}" for scheme in _SCHEMES for name in local}
        # A page on another port of this machine is another origin, a bare name is port 80 or 443.
        bare = [scheme for scheme in _SCHEMES if port == _DEFAULT_PORTS[scheme]]
        origins |= {f"{scheme}://{name}" for scheme in bare for name in LOOPBACK}
        for host in self._hosts or ():
            spellings = (host,) if _has_port(host) else (host, f"{host}:{port}")
            hosts.update(spellings)
            origins |= {f"{scheme}://{text}" for scheme in _SCHEMES for text in spellings}
        origins.update(self._origins or ())
        allowed = (_encoded(hosts), _encoded(origins))
        if len(self._allowed) < _MAX_PORTS:
            self._allowed[port] = allowed
        return allowed


def _bearer(head: Head) -> bytes:
    given = head.raw.get(b"authorization", b"")
    return given[7:].strip() if given[:7].lower() == b"bearer " else b""


def _is_on_this_machine(scope: Scope, raw: dict[bytes, bytes]) -> bool:
    """True if the client is local, and is not a local proxy for a remote one."""
    client = scope.get("client")
    if client is None or not (client[0].startswith("127.") or client[0] == "::1"):
        return False
    name = raw.get(b"host", b"").lower().decode("latin-1")
    if name not in LOOPBACK:
        name = name.rpartition(":")[0]
    return name in LOOPBACK and not any(header in raw for header in _FORWARDED)


@lru_cache(256)
def _prefers_text(accept: bytes) -> bool:
    """True for a client that prefers text to JSON, such as a browser."""
    ranges = _ranges(accept)
    return max(_weight(ranges, b"text/plain"), _weight(ranges, b"text/html")) > _weight(
        ranges, JSON
    )


@lru_cache(256)
def accepts_stream(accept: bytes) -> bool:
    """True if an Accept header allows an event stream; an absent one allows anything."""
    return _weight(_ranges(accept), EVENT_STREAM) > 0


@lru_cache(256)
def answer_type(accept: bytes) -> bytes:
    """Return the preferred one of our two types, or b"" unless both are allowed.

    With equal weights the order decides, then cost: JSON is cheaper.
    """
    ranges = _ranges(accept)
    stream, json = _weight(ranges, EVENT_STREAM), _weight(ranges, JSON)
    if not stream or not json:
        return b""
    named = [type for type, _ in ranges if type in (EVENT_STREAM, JSON)]
    stream_first = named[:1] == [EVENT_STREAM] if stream == json else stream > json
    return EVENT_STREAM if stream_first else JSON


@lru_cache(256)
def is_json(content_type: bytes) -> bool:
    """True for `application/json`, with or without parameters."""
    return content_type.partition(b";")[0].strip().lower() == JSON


def _join_repeated(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Join headers of the same name (RFC 9110, 5.2)."""
    raw: dict[bytes, bytes] = {}
    for name, value in headers:
        raw[name] = raw[name] + b", " + value if name in raw else value
    return raw


def _ranges(accept: bytes) -> list[tuple[bytes, float]]:
    """Return the media ranges of an Accept header, each with its weight (RFC 9110, 12.5.1)."""
    ranges: list[tuple[bytes, float]] = []
    for text in (accept.lower() or b"*/*").split(b","):
        type, *parameters = (part.strip() for part in text.split(b";"))
        weight = 1.0
        for parameter in parameters:
            if parameter[:2] == b"q=":
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        ranges.append((type, weight))
    return ranges


def _weight(ranges: list[tuple[bytes, float]], type: bytes) -> float:
    """Return the weight of a type, by the most specific range that contains it."""
    for candidate in (type, type.partition(b"/")[0] + b"/*", b"*/*"):
        for range, weight in ranges:
            if range == candidate:
                return weight
    return 0.0


def _normalize(
    names: Iterable[str] | None, what: str, normalize: Callable[[str], str]
) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise RegistrationError(f"{what} must be a list of names, not the string {names!r}")
    return None if names is None else tuple(map(normalize, names))


def _normalize_host(host: str) -> str:
    """Return a host as in a Host header: lower case, IPv6 in brackets."""
    if not host or not _HOST_CHARACTERS.issuperset(host):
        raise RegistrationError(
            f"{host!r} is not a host: use NAME or NAME:PORT, without scheme or path"
        )
    bare_ipv6 = host.count(":") > 1 and not host.startswith("[")
    return f"[{host.lower()}]" if bare_ipv6 else host.lower()


def _normalize_origin(text: str) -> str:
    """Return an origin as in an Origin header: scheme, host, and a port that is not the default."""
    scheme, separator, host = text.partition("://")
    if text != "null" and not (scheme and separator and host and _HOST_CHARACTERS.issuperset(host)):
        raise RegistrationError(f"{text!r} is not an origin: use the form https://app.example.com")
    return text.lower()


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def _encoded(texts: set[str]) -> frozenset[bytes]:
    return frozenset(text.encode() for text in texts)
