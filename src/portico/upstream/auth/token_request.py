"""The grants that are sent to a token endpoint, and the tokens in its answer (RFC 6749)."""

from base64 import b64encode, urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from portico.upstream.auth.authorization import AuthorizationRequest
from portico.upstream.auth.client_identity import OwnClient
from portico.upstream.auth.flow import (
    Flow,
    GrantRefused,
    LoginError,
    WebAnswer,
    WebRequest,
    checked_status,
    shown,
)

_HEADERS = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
_ENDS = ("refresh_token_expires_in", "refresh_expires_in")
"""How servers tell when a login ends; no standard names it."""
_ACCOUNTS = ("email", "preferred_username", "name", "sub")
_JWT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_MAX_SECONDS = 10 * 366 * 86400


class Tokens(Struct, frozen=True):
    """The tokens of one answer."""

    access: str
    refresh: str = ""
    life_s: float = 0.0
    """How long the access token lives; 0 if the server does not say."""
    ends_s: float = 0.0
    """When the login ends, from now; 0 if the server does not say."""
    scopes: tuple[str, ...] | None = None
    """None if the server granted the requested ones."""
    subject: str = ""
    """The account's stable id at the issuer; empty if unknown."""
    account: str = ""
    """The account for people; empty if unknown."""

    def __repr__(self) -> str:
        return "Tokens()"


class TokenEndpoint(Struct, frozen=True):
    """Where grants are sent, and how the client authenticates there."""

    url: str
    issuer: str
    client: OwnClient


def refresh_grant(endpoint: TokenEndpoint, refresh_token: str, resource: str) -> Flow[Tokens]:
    """Exchange a refresh token for new ones; a server may replace it (section 6)."""
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "resource": resource,
    }
    return (yield from send_grant(endpoint, fields))


def code_grant(
    endpoint: TokenEndpoint, code: str, request: AuthorizationRequest, resource: str
) -> Flow[Tokens]:
    """Exchange the code of a person's login for tokens (section 4.1.3)."""
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": request.redirect,
        "code_verifier": request.verifier,
        "resource": resource,
    }
    return (yield from send_grant(endpoint, fields))


def client_credentials_grant(
    endpoint: TokenEndpoint, resource: str, scopes: Sequence[str], assertion: str = ""
) -> Flow[Tokens]:
    """Exchange a machine's own credentials for a token (section 4.4); a signed assertion replaces a
    secret."""
    fields = {"grant_type": "client_credentials", "resource": resource}
    if scopes:
        fields["scope"] = " ".join(scopes)
    if assertion:
        fields |= {"client_assertion_type": _JWT, "client_assertion": assertion}
    return (yield from send_grant(endpoint, fields))


def send_grant(endpoint: TokenEndpoint, fields: Mapping[str, str]) -> Flow[Tokens]:
    """Send a grant; raises GrantRefused, or IssuerUnavailable."""
    about = shown(endpoint.issuer)
    answer = yield authenticated(endpoint.url, endpoint.client, fields, f"a token of {about}")
    return _read(answer, about)


def authenticated(url: str, client: OwnClient, fields: Mapping[str, str], about: str) -> WebRequest:
    """Return the request of a client that authenticates itself."""
    headers, form = dict(_HEADERS), dict(fields)
    if client.method == "client_secret_basic":
        pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    else:
        form["client_id"] = client.id
        if client.method == "client_secret_post":
            form["client_secret"] = client.secret
    return WebRequest(url, form=form, headers=headers, about=about)


def _read(answer: WebAnswer, about: str) -> Tokens:
    found = answer.data()
    code = None if found is None else found.get("error")
    # Some servers send errors with the status 200.
    if isinstance(code, str) and (answer.status < 500 or code == "invalid_grant"):
        why = shown(found.get("error_description") or code) if found else code
        date = answer.headers.get("date", "")
        raise GrantRefused(f"{about} refused to issue a token: {why}", shown(code), date)
    checked_status(answer, about)
    if answer.status != 200 or found is None:
        raise LoginError(f"{about} returned HTTP {answer.status} instead of a token")
    access, kind = found.get("access_token"), found.get("token_type", "bearer")
    if not isinstance(access, str) or not _is_header_safe(access):
        raise LoginError(f"{about} returned no usable access token")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise LoginError(f"{about} issues {shown(kind)} tokens, and Portico supports bearer tokens")
    refresh, scope = found.get("refresh_token"), found.get("scope")
    claims = _claims(found.get("id_token"))
    return Tokens(
        access,
        refresh if isinstance(refresh, str) else "",
        seconds(found.get("expires_in")),
        next((span for key in _ENDS if (span := seconds(found.get(key)))), 0.0),
        tuple(scope.split()) if isinstance(scope, str) else None,
        shown(claims.get("sub", "")),
        next((shown(claims[key]) for key in _ACCOUNTS if claims.get(key)), ""),
    )


def seconds(value: object) -> float:
    """Return a span that a server sent, as a number or a string; 0 if it is not a usable one."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(min(value, _MAX_SECONDS)) if value > 0 else 0.0


def _is_header_safe(token: str) -> bool:
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


def _claims(id_token: object) -> dict[str, Any]:
    """Return the claims of an ID token; it came from the token endpoint itself, over TLS, so its
    signature adds nothing (OpenID Connect Core, section 3.1.3.7)."""
    if not isinstance(id_token, str) or id_token.count(".") != 2:
        return {}
    middle = id_token.split(".")[1]
    try:
        found = msgspec.json.decode(urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (Base64Error, ValueError, msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
