"""The authorization request and its response: PKCE (RFC 7636), `state`, and `iss` (RFC 9207)."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from portico.upstream.auth.client_identity import OwnClient
from portico.upstream.auth.discovery import Issuer
from portico.upstream.auth.flow import GrantRefused, LoginError, shown

Random = Callable[[int], bytes]
_ONCE = ("code", "state", "iss", "error", "error_description")


class AuthorizationRequest(Struct, frozen=True):
    """One visit of a person to an authorization server."""

    url: str
    state: str
    verifier: str
    redirect: str

    def __repr__(self) -> str:
        return "AuthorizationRequest()"


def authorization_request(
    issuer: Issuer,
    client: OwnClient,
    redirect: str,
    resource: str,
    scopes: Sequence[str],
    random: Random,
) -> AuthorizationRequest:
    """Return the request, with a verifier and a state of its own."""
    verifier, state = _text(random(32)), _text(random(16))
    query = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": _text(sha256(verifier.encode()).digest()),
        "code_challenge_method": "S256",
        "resource": resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    if "offline_access" in scopes:
        query["prompt"] = "consent"  # OpenID Connect Core, section 11
    url = issuer.authorization_endpoint
    joint = "&" if urlsplit(url).query else "?"
    return AuthorizationRequest(f"{url}{joint}{urlencode(query)}", state, verifier, redirect)


def belongs(request: AuthorizationRequest, redirected: str) -> bool:
    """True if a redirected URL answers this request: the path and the state are its own."""
    try:
        ended, expected = urlsplit(redirected.strip()), urlsplit(request.redirect)
        is_there = (ended.hostname, ended.port, ended.path) == (
            expected.hostname,
            expected.port,
            expected.path,
        )
        return is_there and _response(redirected).get("state") == request.state
    except (ValueError, LoginError):
        return False


def code_of(redirected: str, request: AuthorizationRequest, issuer: Issuer) -> str:
    """Return the code of an authorization response; raises LoginError if it is refused."""
    if not belongs(request, redirected):
        raise LoginError("the redirected URL is not that of this login; start again")
    found = _response(redirected)
    iss = found.get("iss")
    # Compared before anything else is read: no text of a wrong issuer is shown (RFC 9207).
    if iss != issuer.name and (iss is not None or issuer.sends_iss):
        raise LoginError("the response came from another authorization server; start again")
    if "error" in found:
        code = shown(found["error"])
        why = shown(found.get("error_description", "")) or code
        if code == "access_denied":
            raise GrantRefused(f"the login at {shown(issuer.name)} was denied: {why}", code)
        raise GrantRefused(f"{shown(issuer.name)} refused the login: {why}", code)
    if not found.get("code"):
        raise LoginError("the redirected URL has no code; start again")
    return found["code"]


def _response(redirected: str) -> dict[str, str]:
    pairs = parse_qsl(urlsplit(redirected.strip()).query, keep_blank_values=True, max_num_fields=50)
    names = [name for name, _ in pairs]
    if any(names.count(name) > 1 for name in _ONCE):
        raise LoginError("the redirected URL repeats a parameter; start again")
    return dict(pairs)


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
