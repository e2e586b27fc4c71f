"""The login of a person, from the first request to the tokens, without any I/O of its own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.authorization import Random, authorization_request, belongs, code_of
from portico.upstream.auth.challenge import Challenge
from portico.upstream.auth.client_identity import (
    CONFIGURED,
    DESCRIBED,
    REGISTERED,
    OwnClient,
    identify,
    redirect_uri,
)
from portico.upstream.auth.discovery import Discovered, discover
from portico.upstream.auth.flow import GrantRefused, LoginError, LoginFlow, Visit, WebRequest, shown
from portico.upstream.auth.login import Login, LoginFacts, LoginPlace
from portico.upstream.auth.token_request import TokenEndpoint, Tokens, authenticated, code_grant

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
    """The scopes of the command line, or those that a call lacked; empty for the server's own."""
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
    check_issuer(found, settings)
    _check_pages(found)
    scopes = requested_scopes(settings, found)
    for attempt in range(_TRIES):
        client, port = yield from _client(found, auth, clients, bind)
        request = authorization_request(
            found.issuer,
            client,
            redirect_uri(port),
            found.resource,
            scopes,
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
    id = _id(settings, found, tokens.subject, random)
    return new_login(settings, found, client, tokens, id, tokens.account, scopes, clock())


def new_login(
    settings: LoginSettings,
    found: Discovered,
    client: OwnClient,
    tokens: Tokens,
    id: str,
    account: str,
    scopes: Sequence[str],
    now: float,
) -> Login:
    """Return the login of new tokens, which were requested with these scopes."""
    facts = LoginFacts(
        id=id,
        place=settings.place.shown,
        issuer=found.issuer.name,
        account=account,
        scopes=tuple(scopes) if tokens.scopes is None else tokens.scopes,
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
        signing=found.issuer.signing,
        asked=_asked(settings, tokens.subject),
    )
    return empty.renewed(tokens, now)


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


def requested_scopes(settings: LoginSettings, found: Discovered) -> tuple[str, ...]:
    """Return the scopes to request: the chosen ones, and those that the last login had."""
    chosen = settings.scopes or settings.auth.scopes
    if not chosen and settings.challenge is not None and settings.challenge.problem:
        raise LoginError(
            f"the server requires {settings.challenge.problem}; choose yours with --scope"
        )
    before = settings.before
    is_same = before is not None and before.facts.issuer == found.issuer.name
    earlier = before.facts.scopes if before is not None and is_same else ()
    scopes = tuple(dict.fromkeys((*earlier, *(chosen or found.scopes))))
    if not scopes or "offline_access" in scopes or "offline_access" not in found.issuer.scopes:
        return scopes
    return (*scopes, "offline_access")


def _asked(settings: LoginSettings, subject: str) -> dict[str, int]:
    """Return how many logins in a row have requested each scope by name; another account, if it is
    known to be one, begins at zero."""
    before = settings.before
    is_other = before is None or (before.subject and subject and before.subject != subject)
    earlier = {} if before is None or is_other else before.asked
    return {**earlier, **{scope: earlier.get(scope, 0) + 1 for scope in settings.scopes}}


def _check_pages(found: Discovered) -> None:
    """A person needs a page to log in at, and PKCE must protect its code."""
    issuer, name = found.issuer, shown(found.issuer.name)
    if not issuer.authorization_endpoint:
        raise LoginError(
            f"{name} has no authorization_endpoint, where people log in; a machine logs in with "
            'auth.grant = "client_credentials"'
        )
    if not issuer.has_pkce:
        raise LoginError(f"{name} does not support PKCE with S256, which a login requires")


def check_issuer(found: Discovered, settings: LoginSettings) -> None:
    """Raise LoginError if a configured client would be sent to another issuer (mix-up)."""
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
