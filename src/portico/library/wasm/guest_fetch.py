"""HTTP requests of guests: granted hosts only, at every redirect, and no private addresses.

A name may be granted, and lead to an address that only this machine can reach. Such an address is
contacted only if the grant itself names it (`127.0.0.1:8080`, `localhost`).
"""

import base64
import binascii
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.config.component_grants import ANY
from portico.core.http1.errors import Http1Error
from portico.core.http1.headers import header_problem
from portico.core.http1.pool import Pool
from portico.core.http1.url import Origin, join_url, parse_url
from portico.library.wasm.failures import Refused
from portico.upstream.auth.address_rule import AddressRule

CONNECT_S = 10.0
MAX_REDIRECTS = 5
MAX_BODY = 16 * 1024 * 1024
_PORTS = {"http": 80, "https": 443}
_OWN_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "upgrade", "proxy-authorization"}
)
"""Headers that belong to the connection, which is Portico's."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class FetchRequest(Struct, kw_only=True):
    """A request as a guest writes it."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str | None = None
    bodyBase64: str | None = None  # noqa: N815  (a field of the interface)


class GuestFetch:
    """Sends the requests of one component."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """`hosts` are granted: `host`, `host:port`, `*.host` or `any`."""
        self._hosts = tuple(host.lower() for host in hosts)

    async def send(self, text: str) -> str:
        """Return the response as JSON; raises Refused."""
        request = _decoded(text)
        content = _content(request)
        method, url = request.method.upper(), request.url
        headers = _checked_headers(request)
        try:
            for _ in range(MAX_REDIRECTS + 1):
                answer, following = await self._exchange(method, url, headers, content)
                if not following:
                    return msgspec.json.encode(answer).decode()
                before, url = parse_url(url).origin, join_url(url, following)
                if parse_url(url).origin != before:  # credentials are for the first origin only
                    headers = _without_credentials(headers)
                if answer["status"] in (301, 302, 303) and method != "HEAD":
                    method, content = "GET", None
        except Http1Error as error:
            raise Refused(f"the request failed: {error}") from None
        raise Refused(f"the request failed: more than {MAX_REDIRECTS} redirects")

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> tuple[dict[str, Any], str]:
        """Return the response, and the URL of a redirect; raises Refused."""
        target = parse_url(url)
        self._check(target.origin)
        trusted = frozenset({target.origin.host} if _is_literal(target.origin.host) else ())
        permit = AddressRule(trusted=trusted).permit(target.origin)
        pool = Pool({}, CONNECT_S, is_direct=True, permit=permit)
        try:
            response = await pool.send(method, url, headers, content)
            await response.head()
            following = response.headers.get("location", "")
            answer: dict[str, Any] = {"status": response.status, "headers": response.headers}
            if 300 <= response.status < 400 and following:
                return answer, following
            body = bytearray()
            async for chunk in response:
                body += chunk
                if len(body) > MAX_BODY:
                    raise Refused(f"the response is longer than {MAX_BODY} bytes")
        finally:
            await pool.close()
        try:
            answer["body"] = body.decode()
        except UnicodeDecodeError:
            answer["bodyBase64"] = base64.b64encode(body).decode()
        return answer, ""

    def _check(self, origin: Origin) -> None:
        """Raise Refused unless the operator granted this host."""
        if not any(is_granted(origin, host) for host in self._hosts):
            raise Refused(f"the host {origin.shown} is not granted")


def is_granted(origin: Origin, grant: str) -> bool:
    """True if a grant covers an origin; without a port it covers the standard ports."""
    if grant == ANY:
        return True
    host, port = split_host(grant)
    if port is None:
        is_port = origin.port == _PORTS[origin.scheme]
    else:
        is_port = origin.port == port
    if host.startswith("*."):
        return is_port and origin.host.endswith(host[1:]) and len(origin.host) > len(host) - 1
    return is_port and origin.host.rstrip(".") == host


def split_host(grant: str) -> tuple[str, int | None]:
    """Return the host and the port of a grant; None without a port."""
    if grant.startswith("["):
        host, _, port = grant[1:].partition("]")
        return host, int(port[1:]) if port[1:].isdecimal() else None
    host, _, port = grant.rpartition(":")
    return (host, int(port)) if host and ":" not in host and port.isdecimal() else (grant, None)


def _is_literal(host: str) -> bool:
    """True for an address, and for this machine: hosts that no lookup can change."""
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _decoded(text: str) -> FetchRequest:
    try:
        return msgspec.json.decode(text, type=FetchRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(f"the request is not valid: {error}") from None


def _content(request: FetchRequest) -> bytes | None:
    if request.bodyBase64 is None:
        return None if request.body is None else request.body.encode()
    try:
        return base64.b64decode(request.bodyBase64, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("the request is not valid: bodyBase64 is not base64") from None


def _checked_headers(request: FetchRequest) -> dict[str, str]:
    if request.method.upper() not in _METHODS:
        raise Refused(f"the request is not valid: unknown method {request.method[:40]!r}")
    for name, value in request.headers.items():
        if name.lower() in _OWN_HEADERS:
            raise Refused(f"the header {name} belongs to the connection; leave it out")
        if why := header_problem(name, value):
            raise Refused(f"the request is not valid: {why}")
    return dict(request.headers)


def _without_credentials(headers: Mapping[str, str]) -> dict[str, str]:
    secret = ("authorization", "cookie")
    return {name: value for name, value in headers.items() if name.lower() not in secret}
