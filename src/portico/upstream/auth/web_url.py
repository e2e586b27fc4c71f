"""The URLs of a login: over HTTPS, or to this machine; and the comparison of servers."""

import ipaddress
from urllib.parse import urlsplit

from portico.core.http1.errors import InvalidRequest
from portico.core.http1.url import parse_url
from portico.upstream.auth.flow import LoginError, shown


def checked_url(url: object, what: str) -> str:
    """Return a URL that a login may use; raises LoginError."""
    if not isinstance(url, str) or not url:
        raise LoginError(f"{what} is missing")
    try:
        target = parse_url(url)
        parts = urlsplit(url)
    except (InvalidRequest, ValueError):
        raise LoginError(f"{what} is not a valid URL: {shown(url)}") from None
    if target.login or parts.fragment:
        raise LoginError(f"{what} must have no user, password or fragment")
    if target.origin.scheme != "https" and not is_this_machine(target.origin.host):
        raise LoginError(f"{what} must use https: {shown(url)}")
    return url


def is_this_machine(host: str) -> bool:
    """True for a name or literal address of the loopback interface."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL, the default port omitted."""
    origin = parse_url(url).origin
    return f"{origin.scheme}://{origin.shown}"


def canonical(url: str) -> str:
    """Return the URL of a server as a resource indicator: without user and fragment (RFC 8707)."""
    target = parse_url(url)
    path = "" if target.path == "/" else target.path
    return f"{target.origin.scheme}://{target.origin.shown}{path}"


def covers(resource: str, server: str) -> bool:
    """True if a resource is this server, or a path above it on the same origin."""
    try:
        mine, other = parse_url(server), parse_url(resource)
    except InvalidRequest:
        return False
    if mine.origin != other.origin:
        return False
    path = other.path.rstrip("/")
    return other.path == mine.path or mine.path.partition("?")[0].startswith(f"{path}/") or not path
