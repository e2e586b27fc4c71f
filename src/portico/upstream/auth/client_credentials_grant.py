"""The grant of a machine: the client's own credentials (RFC 6749, section 4.4)."""

from collections.abc import Sequence

from portico.upstream.auth.flow import Flow
from portico.upstream.auth.token_request import TokenEndpoint, Tokens, send_grant

_JWT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def client_credentials_grant(
    endpoint: TokenEndpoint, resource: str, scopes: Sequence[str], assertion: str = ""
) -> Flow[Tokens]:
    """Exchange the credentials of a client for a token; a signed assertion replaces a secret."""
    fields = {"grant_type": "client_credentials", "resource": resource}
    if scopes:
        fields["scope"] = " ".join(scopes)
    if assertion:
        fields |= {"client_assertion_type": _JWT, "client_assertion": assertion}
    return (yield from send_grant(endpoint, fields))
