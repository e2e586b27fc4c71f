"""The client id of Portico at an authorization server: configured, at a URL, or registered."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.discovery import Issuer
from portico.upstream.auth.flow import Flow, LoginError, WebRequest, checked_status, shown

CALLBACK = "/callback"
CONFIGURED, DESCRIBED, REGISTERED = "configured", "described", "registered"


class OwnClient(Struct, frozen=True):
    """A client id at one issuer, with its secret, if it has one."""

    id: str
    secret: str = ""
    method: str = "none"
    """How it authenticates: `none`, `client_secret_basic` or `client_secret_post`."""
    kind: str = REGISTERED
    port: int = 0
    """The port of the redirect URI that it was registered with; 0 for any."""

    def __repr__(self) -> str:
        return f"OwnClient({self.kind})"


def redirect_uri(port: int) -> str:
    """Return the URI at which the browser ends: a literal address, as RFC 8252 advises."""
    return f"http://127.0.0.1:{port}{CALLBACK}"


def identify(
    issuer: Issuer, settings: AuthSettings, known: OwnClient | None, port: int
) -> Flow[OwnClient]:
    """Return the client to use: configured, else described at a URL, else registered.

    `known` was registered before, at the port that is free; `port` is for a new registration.
    """
    if settings.client_id:
        return _configured(issuer, settings)
    if settings.client_metadata_url and issuer.takes_metadata_url:
        return OwnClient(settings.client_metadata_url, kind=DESCRIBED)
    if known is not None:
        return known
    if issuer.registration_endpoint:
        return (yield from _registered(issuer, port))
    raise LoginError(
        f"{shown(issuer.name)} does not register clients: register Portico there with the redirect "
        f"URI {redirect_uri(settings.redirect_port or 8976)}, then set client_id (and "
        "redirect_port = 8976) in the server's auth table"
    )


def _configured(issuer: Issuer, settings: AuthSettings) -> OwnClient:
    method = "none"
    if settings.client_secret:
        offered = [one for one in issuer.auth_methods if one != "none"]
        method = offered[0] if offered else "client_secret_basic"
    return OwnClient(settings.client_id, settings.client_secret, method, CONFIGURED)


def _registered(issuer: Issuer, port: int) -> Flow[OwnClient]:
    """Register Portico (RFC 7591)."""
    about = f"the registration at {shown(issuer.name)}"
    answer = yield WebRequest(
        issuer.registration_endpoint,
        json=registration(port, issuer.auth_methods[0]),
        headers={"content-type": "application/json", "accept": "application/json"},
        about=about,
    )
    checked_status(answer, about)
    found = answer.data() or {}
    if answer.status not in (200, 201):
        why = found.get("error_description") or found.get("error") or f"HTTP {answer.status}"
        raise LoginError(f"{about} failed: {shown(why)}; set client_id in the server's auth table")
    return _read_registration(found, issuer, port, about)


def registration(port: int, method: str) -> Mapping[str, Any]:
    """Return the metadata with which Portico registers."""
    return {
        "client_name": "Portico",
        "redirect_uris": [redirect_uri(port)],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    }


def _read_registration(
    found: Mapping[str, Any], issuer: Issuer, port: int, about: str
) -> OwnClient:
    id, secret = found.get("client_id"), found.get("client_secret") or ""
    if not isinstance(id, str) or not id or not isinstance(secret, str):
        raise LoginError(f"{about} failed: the answer has no client_id")
    method = found.get("token_endpoint_auth_method") or issuer.auth_methods[0]
    if not secret:
        method = "none"
    elif method not in ("client_secret_basic", "client_secret_post"):
        method = "client_secret_basic"
    return OwnClient(id, secret, method, REGISTERED, port)
