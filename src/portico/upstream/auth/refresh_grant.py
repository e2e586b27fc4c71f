"""The grant that keeps a login: a refresh token (RFC 6749, section 6)."""

from portico.upstream.auth.flow import Flow
from portico.upstream.auth.token_request import TokenEndpoint, Tokens, send_grant


def refresh_grant(endpoint: TokenEndpoint, refresh_token: str, resource: str) -> Flow[Tokens]:
    """Exchange a refresh token for new tokens; a server may replace the refresh token."""
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "resource": resource,
    }
    return (yield from send_grant(endpoint, fields))
