"""Flows of a login run without a socket: each request is answered from a table."""

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import msgspec

from portico.upstream.auth.client_identity import OwnClient
from portico.upstream.auth.flow import Visit, WebAnswer, WebRequest

T = TypeVar("T")
SERVER = "https://api.test/mcp"
ISSUER = "https://id.test"
JSON = {"content-type": "application/json"}
Answers = Mapping[str, Any]


def issuer(name: str = ISSUER, **more: Any) -> dict[str, Any]:
    """The metadata of an authorization server."""
    return {
        "issuer": name,
        "authorization_endpoint": f"{name}/authorize",
        "token_endpoint": f"{name}/token",
        "registration_endpoint": f"{name}/register",
        "revocation_endpoint": f"{name}/revoke",
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
    } | more


WELL_KNOWN: Answers = {
    "https://api.test/.well-known/oauth-protected-resource/mcp": {
        "resource": SERVER,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["read"],
    },
    f"{ISSUER}/.well-known/oauth-authorization-server": issuer(),
    f"{ISSUER}/register": (201, {"client_id": "made"}),
    f"{ISSUER}/token": {"access_token": "at", "token_type": "Bearer", "expires_in": 60},
}


class Played:
    """A flow's requests, and its outcome."""

    def __init__(self, answers: Answers, visit: Callable[[Visit], str] | None = None) -> None:
        self.requests: list[WebRequest] = []
        self._answers = answers
        self._visit = visit

    @property
    def urls(self) -> list[str]:
        """What was requested, in order."""
        return [one.url for one in self.requests]

    def run(self, flow: Generator[Any, Any, T]) -> T:
        """Answer all requests of a flow, and return its outcome."""
        answer: Any = None
        while True:
            try:
                wanted = flow.send(answer)
            except StopIteration as ended:
                outcome: T = ended.value
                return outcome
            if isinstance(wanted, Visit):
                assert self._visit is not None
                answer = self._visit(wanted)
            else:
                self.requests.append(wanted)
                answer = self._answer(wanted)

    def _answer(self, wanted: WebRequest) -> WebAnswer:
        found = self._answers.get(wanted.url, (404, {}))
        status, body = found if isinstance(found, tuple) else (200, found)
        if isinstance(body, bytes):
            return WebAnswer(status, body, {"content-type": "text/html"})
        return WebAnswer(status, msgspec.json.encode(body), JSON)


class KnownClients:
    """The registered clients, in memory."""

    def __init__(self, **known: OwnClient) -> None:
        self.known: dict[str, OwnClient] = dict(known)

    def client_at(self, issuer: str) -> OwnClient | None:
        return self.known.get(issuer)

    def save_client(self, issuer: str, client: OwnClient | None) -> None:
        if client is None:
            self.known.pop(issuer, None)
        else:
            self.known[issuer] = client
