"""Finds the authorization server of an MCP server (RFC 9728, RFC 8414, OpenID discovery)."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from portico.core.model.version import LATEST_LEGACY
from portico.core.protocol.ladder import VERSION_HEADER
from portico.upstream.auth.challenge import Challenge
from portico.upstream.auth.flow import (
    Flow,
    LoginError,
    WebAnswer,
    WebRequest,
    checked_status,
    shown,
)
from portico.upstream.auth.web_url import canonical, checked_url, covers, origin_of

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_HEADERS = {"accept": "application/json", VERSION_HEADER: LATEST_LEGACY.text}
_MAX_SCOPES = 200
_METHODS = ("none", "client_secret_basic", "client_secret_post")
"""The ways of clients to authenticate that Portico has, the preferred one first."""


class Issuer(Struct, frozen=True, kw_only=True):
    """An authorization server: where it is, and what it offers."""

    name: str
    """Its issuer identifier."""
    token_endpoint: str
    authorization_endpoint: str = ""
    """Where people log in; empty if they cannot."""
    has_pkce: bool = True
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    auth_methods: tuple[str, ...] = ("client_secret_basic",)
    signing: tuple[str, ...] = ()
    """The algorithms of assertions that it accepts; empty if it does not say."""
    scopes: tuple[str, ...] = ()
    sends_iss: bool = False
    """True if each of its authorization responses names it (RFC 9207)."""
    takes_metadata_url: bool = False
    """True if the URL of a metadata document can be a client id."""


class Discovered(Struct, frozen=True):
    """The facts about a server that a login needs."""

    resource: str
    """The resource indicator to send (RFC 8707)."""
    issuer: Issuer
    scopes: tuple[str, ...] = ()
    """The scopes to request, unless the user chooses others."""


def discover(
    server: str, challenge: Challenge, issuer: str = "", *, was_refused: bool = True
) -> Flow[Discovered]:
    """Find the authorization server of an MCP server; `issuer` is the one in the config."""
    metadata = yield from _resource_metadata(server, challenge)
    if metadata is None:
        # A server of 2025-03-26 is its own authorization server, at the root of its origin.
        origin = issuer or origin_of(server)
        found = yield from _issuer(origin, is_guess=not issuer, may_lack=was_refused)
        return Discovered(canonical(server), found, challenge.scopes or ())
    resource = metadata["resource"]
    name = _chosen(_texts(metadata.get("authorization_servers")), issuer)
    found = yield from _issuer(name)
    scopes = challenge.scopes or _texts(metadata.get("scopes_supported"))
    return Discovered(resource, found, scopes)


def _chosen(listed: Sequence[str], configured: str) -> str:
    if configured:
        if listed and configured not in listed:
            raise LoginError(
                f"the server does not name {configured} as its authorization server; "
                "check auth.issuer"
            )
        return configured
    if not listed:
        raise LoginError("the server's metadata names no authorization server; set auth.issuer")
    return listed[0]


def _resource_metadata(server: str, challenge: Challenge) -> Flow[dict[str, Any] | None]:
    """Return the metadata of the protected resource; None if the server has none."""
    about = "the server's resource metadata"
    if challenge.resource_metadata:
        places = [checked_url(challenge.resource_metadata, "resource_metadata of the challenge")]
    else:
        parts, origin = urlsplit(canonical(server)), origin_of(server)
        path = parts.path.rstrip("/")
        query = f"?{parts.query}" if parts.query else ""
        places = [f"{origin}{_RESOURCE}{path}{query}", f"{origin}{_RESOURCE}"]
    for place in dict.fromkeys(places):
        checked_url(place, about)
        answer = yield WebRequest(place, headers=_HEADERS, about=about)
        found = _object(answer, about)
        if found is None:
            continue
        resource = found.get("resource")
        # The metadata of another server must not be used (RFC 9728, section 3.3).
        if not isinstance(resource, str) or not covers(resource, server):
            raise LoginError(f"the resource metadata is about another server: {shown(resource)}")
        return found
    if challenge.resource_metadata:
        raise LoginError("the server names resource metadata that is not there")
    return None


def _issuer(name: str, *, is_guess: bool = False, may_lack: bool = True) -> Flow[Issuer]:
    """Read the metadata of an authorization server; a guessed one may have none."""
    checked_url(name, "the authorization server")
    for place in _places(name):
        about = f"the metadata of {shown(name)}"
        answer = yield WebRequest(place, headers=_HEADERS, about=about)
        found = _object(answer, about)
        if found is not None:
            return _read_issuer(found, name, is_guess)
    if not is_guess:
        raise LoginError(f"{shown(name)} has no metadata of an authorization server")
    if not may_lack:
        raise LoginError("the server does not ask for a login")
    # The defaults of 2025-03-26, section 2.3.3.
    base = name.rstrip("/")
    return Issuer(
        name=name,
        authorization_endpoint=f"{base}/authorize",
        token_endpoint=f"{base}/token",
        registration_endpoint=f"{base}/register",
        auth_methods=("none",),
    )


def _places(name: str) -> list[str]:
    origin, path = origin_of(name), urlsplit(name).path.rstrip("/")
    if not path:
        return [f"{origin}{_SERVER}", f"{origin}{_OPENID}"]
    return [f"{origin}{_SERVER}{path}", f"{origin}{_OPENID}{path}", f"{origin}{path}{_OPENID}"]


def _read_issuer(found: Mapping[str, Any], name: str, is_guess: bool) -> Issuer:
    told = found.get("issuer")
    same = (name, f"{name}/") if is_guess else (name,)
    if told not in same or not isinstance(told, str):
        # A wrong issuer may be an attack, so its own text is not shown (RFC 8414, section 3.3).
        raise LoginError(f"the metadata of {shown(name)} is that of another issuer")
    methods = _texts(found.get("token_endpoint_auth_methods_supported"))
    endpoints = {
        key: checked_url(found[key], f"{key} of {shown(name)}")
        for key in ("authorization_endpoint", "registration_endpoint", "revocation_endpoint")
        if found.get(key)
    }
    return Issuer(
        name=told,
        has_pkce="S256" in _texts(found.get("code_challenge_methods_supported")),
        token_endpoint=checked_url(found.get("token_endpoint"), f"token_endpoint of {shown(name)}"),
        auth_methods=tuple(method for method in _METHODS if method in methods)
        or ("client_secret_basic",),
        signing=_texts(found.get("token_endpoint_auth_signing_alg_values_supported")),
        scopes=_texts(found.get("scopes_supported")),
        sends_iss=found.get("authorization_response_iss_parameter_supported") is True,
        takes_metadata_url=found.get("client_id_metadata_document_supported") is True,
        **endpoints,
    )


def _object(answer: WebAnswer, about: str) -> dict[str, Any] | None:
    """Return the metadata in an answer; None if the server has none at this place."""
    checked_status(answer, about)
    if answer.status != 200:
        return None
    found = answer.data()
    if found is None:
        # A site's page for everything is an answer to any URL.
        kind = answer.headers.get("content-type", "")
        if "json" in kind:
            raise LoginError(f"{about} is not a JSON object")
    return found


def _texts(value: object) -> tuple[str, ...]:
    """Return the words of a list; a server may send anything."""
    listed = value if isinstance(value, list) else []
    words = [one for one in listed if isinstance(one, str) and one and len(one) <= 2048]
    return tuple(dict.fromkeys(words[:_MAX_SCOPES]))
