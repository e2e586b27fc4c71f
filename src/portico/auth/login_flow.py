"""The login of a person, from the first request to the tokens, without any I/O of its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from portico.auth.authorization import Random, authorization_request, belongs, code_of
from portico.auth.challenge import Challenge
from portico.auth.client_identity import (
    CONFIGURED,
    DESCRIBED,
    REGISTERED,
    OwnClient,
    identify,
    redirect_uri,
)
from portico.auth.code_grant import code_grant
from portico.auth.discovery import Discovered, discover
from portico.auth.flow import GrantRefused, LoginError, LoginFlow, Visit, WebRequest, shown
from portico.auth.login import Login, LoginFacts, LoginPlace
from portico.auth.token_request import TokenEndpoint, authenticated
from portico.config.auth_settings import AuthSettings

Clock = Callable[[], float]
_TRIES = 2
"""A registered client that an issuer has forgotten is registered once more."""


class LoginSettings(Struct, frozen=True, kw_only=True):
    """The facts that a login begins with."""

    place: LoginPlace
    auth: AuthSettings
    challenge: Challenge | None = Challenge()
    """None if the server let us in: it may refuse its lists only."""
    scopes: tuple[str, ...] = ()
    """The scopes of the command line; empty for the server's own."""
    before: Login | None = None
    """The login that this one replaces."""


class OwnClients(Protocol):
    """The clients that Portico has registered, by issuer."""

    def client_at(self, issuer: str) -> OwnClient | None:
        """Return the client that is registered at an issuer."""
        ...

    def save_client(self, issuer: str, client: OwnClient | None) -> None:
        """Keep a registered client; None forgets it."""
        ...


Bind = Callable[[int], int]
"""Listens for the browser at a port, or at any if it is 0, and returns it; 0 if it is taken."""


def log_in(
    settings: LoginSettings, clients: OwnClients, bind: Bind, random: Random, clock: Clock
) -> LoginFlow[Login]:
    """Discover, identify, send the person to the page, and exchange the code."""
    auth = settings.auth
    url, challenge = settings.place.url, settings.challenge
    found = yield from discover(
        url, challenge or Challenge(), auth.issuer, was_refused=challenge is not None
    )
    _check_issuer(found, settings)
    for attempt in range(_TRIES):
        client, port = yield from _client(found, auth, clients, bind)
        request = authorization_request(
            found.issuer,
            client,
            redirect_uri(port),
            found.resource,
            _scopes(settings, found),
            random,
        )
        accepts = partial(belongs, request)
        redirected: str = yield Visit(request.url, found.issuer.name, accepts)
        endpoint = TokenEndpoint(found.issuer.token_endpoint, found.issuer.name, client)
        try:
            code = code_of(redirected, request, found.issuer)
            tokens = yield from code_grant(endpoint, code, request, found.resource)
        except GrantRefused as refused:
            is_forgotten = refused.code in ("invalid_client", "unauthorized_client")
            if not is_forgotten or client.kind in (CONFIGURED, DESCRIBED) or attempt:
                raise
            clients.save_client(found.issuer.name, None)
            continue
        break
    scopes = tokens.scopes if tokens.scopes is not None else _scopes(settings, found)
    facts = LoginFacts(
        id=_id(settings, found, tokens.subject, random),
        place=settings.place.shown,
        issuer=found.issuer.name,
        account=tokens.account,
        scopes=tuple(scopes),
    )
    empty = Login(
        facts=facts,
        url=settings.place.url,
        access="",
        subject=tokens.subject,
        resource=found.resource,
        token_endpoint=found.issuer.token_endpoint,
        revocation_endpoint=found.issuer.revocation_endpoint,
        client=client,
    )
    return empty.renewed(tokens, clock())


def _client(
    found: Discovered, auth: AuthSettings, clients: OwnClients, bind: Bind
) -> LoginFlow[tuple[OwnClient, int]]:
    """Return the client and the port where the browser ends."""
    issuer = found.issuer
    is_own = auth.client_id or (auth.client_metadata_url and issuer.takes_metadata_url)
    known = None if is_own else clients.client_at(issuer.name)
    wanted = auth.redirect_port or (known.port if known is not None else 0)
    port = bind(wanted)
    if not port and not auth.redirect_port:
        port = bind(0)  # the port of a registered client is taken: it is registered again
    if not port:
        raise LoginError(f"port {wanted} is in use; end that program, or change auth.redirect_port")
    if known is not None and known.port != port:
        known = None
    client = yield from identify(issuer, auth, known, port)
    if client.kind == REGISTERED and client is not known:
        clients.save_client(issuer.name, client)
    return client, port


def _scopes(settings: LoginSettings, found: Discovered) -> Sequence[str]:
    return settings.scopes or settings.auth.scopes or found.scopes


def _check_issuer(found: Discovered, settings: LoginSettings) -> None:
    """A client id belongs to one issuer: it must not be sent to another (mix-up)."""
    before, auth = settings.before, settings.auth
    if before is None or not auth.client_id or auth.issuer or before.client.kind != CONFIGURED:
        return
    if before.facts.issuer != found.issuer.name:
        raise LoginError(
            f"the authorization server is now {shown(found.issuer.name)}, and auth.client_id is "
            f"for {shown(before.facts.issuer)}; if that is right, set auth.issuer and the new "
            "client_id"
        )


def _id(settings: LoginSettings, found: Discovered, subject: str, random: Random) -> str:
    """Return the id of the account: the same one again if it is known to be the same."""
    before = settings.before
    if before is not None and subject:
        known = (before.facts.issuer, before.subject)
        if known == (found.issuer.name, subject):
            return before.facts.id
    return random(12).hex()


def revoke(login: Login) -> LoginFlow[None]:
    """Revoke the tokens of a login (RFC 7009), the refresh token first: it ends the access too."""
    for kind, token in (("refresh_token", login.refresh), ("access_token", login.access)):
        if token and login.revocation_endpoint:
            fields = {"token": token, "token_type_hint": kind}
            request: WebRequest = authenticated(
                login.revocation_endpoint,
                login.client,
                fields,
                f"the revocation at {shown(login.facts.issuer)}",
            )
            answer = yield request
            if answer.status != 200:
                raise LoginError(f"{request.about} returned HTTP {answer.status}")
