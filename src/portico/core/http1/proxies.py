"""The proxy that the environment names for an origin, if any."""

import ipaddress
import os
import sys
from collections.abc import Mapping

from msgspec import Struct

from portico.core.http1.errors import InvalidRequest
from portico.core.http1.url import Origin, parse_url


class Proxy(Struct, frozen=True):
    """A proxy, and the credentials for it."""

    origin: Origin
    login: str = ""


def proxy_for(origin: Origin, environ: Mapping[str, str] | None = None) -> Proxy | None:
    """Return the proxy for an origin; raises InvalidRequest if it is not an HTTP proxy."""
    variables = _environment() if environ is None else environ
    exempt = _read(variables, "no_proxy").split(",")
    if any(_matches(origin, entry.strip().lower()) for entry in exempt):
        return None
    for name in (f"{origin.scheme}_proxy", "all_proxy"):
        if value := _read(variables, name).strip():
            return _proxy(value, name.upper())
    return None


def _proxy(value: str, name: str) -> Proxy:
    url = value if "://" in value else f"http://{value}"
    scheme = url.partition("://")[0].lower()
    if scheme not in ("http", "https"):
        why = f"{name} names a {scheme}:// proxy, which is not supported"
        raise InvalidRequest(f"{why}; name an HTTP proxy, or exempt the host with NO_PROXY")
    try:
        target = parse_url(url)
    except InvalidRequest:
        raise InvalidRequest(f"the proxy URL in {name} is not valid") from None
    return Proxy(target.origin, target.login)


def _environment() -> Mapping[str, str]:
    if sys.platform == "darwin" and not any(key.lower().endswith("_proxy") for key in os.environ):
        from urllib.request import getproxies  # the system's settings

        return {f"{kind}_proxy": value for kind, value in getproxies().items()}
    return os.environ


def _read(environ: Mapping[str, str], name: str) -> str:
    """Return a variable in lower case, else in upper case."""
    if name in environ:
        return environ[name]
    # Under CGI a client can set this one, with the header "Proxy".
    if name == "http_proxy" and "REQUEST_METHOD" in environ:
        return ""
    return environ.get(name.upper(), "")


def _matches(origin: Origin, entry: str) -> bool:
    if entry == "*":
        return True
    scheme, found, rest = entry.rpartition("://")
    if found and scheme not in ("all", origin.scheme):
        return False
    plain = rest if "]:" in rest else rest.replace("[", "").replace("]", "")
    try:
        network = ipaddress.ip_network(plain, strict=False)
    except ValueError:
        return _is_named(origin, rest)
    try:
        return ipaddress.ip_address(origin.host.partition("%")[0]) in network
    except ValueError:
        return False


def _is_named(origin: Origin, entry: str) -> bool:
    """Match `name` and its subdomains, or `.name` for subdomains only; either may have a port."""
    name, colon, port = entry.rpartition(":")
    if not colon:
        name = entry
    elif port != str(origin.port):
        return False
    name = name.removeprefix("*").strip("[]")
    host = origin.host.rstrip(".")
    return bool(name.strip(".")) and (
        host == name or host.endswith(name if name.startswith(".") else f".{name}")
    )
