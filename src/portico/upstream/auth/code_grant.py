"""The grant of a person's login: an authorization code (RFC 6749, section 4.1.3)."""

from portico.upstream.auth.authorization import AuthorizationRequest
from portico.upstream.auth.flow import Flow
from portico.upstream.auth.token_request import TokenEndpoint, Tokens, send_grant


def code_grant(
    endpoint: TokenEndpoint, code: str, request: AuthorizationRequest, resource: str
) -> Flow[Tokens]:
    """Exchange a code for tokens."""
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": request.redirect,
        "code_verifier": request.verifier,
        "resource": resource,
    }
    return (yield from send_grant(endpoint, fields))
