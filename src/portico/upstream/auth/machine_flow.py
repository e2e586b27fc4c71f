"""The login of a machine, which needs no person: discovery, then client credentials."""

from collections.abc import Sequence

from msgspec.structs import replace

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.authorization import Random
from portico.upstream.auth.challenge import Challenge
from portico.upstream.auth.client_assertion import AssertionKey
from portico.upstream.auth.client_identity import CONFIGURED, OwnClient, identify
from portico.upstream.auth.discovery import discover
from portico.upstream.auth.flow import Flow, GrantRefused
from portico.upstream.auth.login import Login, machine_id
from portico.upstream.auth.login_flow import (
    Clock,
    LoginSettings,
    check_issuer,
    new_login,
    requested_scopes,
)
from portico.upstream.auth.token_request import TokenEndpoint, Tokens, client_credentials_grant

_MAX_OFF_S = 30.0
"""A clock that is off by more than this is named in a refusal."""
ASSERTION = "private_key_jwt"


def log_in_machine(
    settings: LoginSettings, key: AssertionKey | None, random: Random, clock: Clock
) -> Flow[Login]:
    """Find the authorization server, and exchange the configured credentials for a token."""
    auth, challenge = settings.auth, settings.challenge
    found = yield from discover(
        settings.place.url, challenge or Challenge(), auth.issuer, was_refused=challenge is not None
    )
    check_issuer(found, settings)
    if key is None:
        client = yield from identify(found.issuer, auth, None, 0)
    else:
        client = OwnClient(auth.client_id, method=ASSERTION, kind=CONFIGURED)
    endpoint = TokenEndpoint(found.issuer.token_endpoint, found.issuer.name, client)
    # No refresh token is issued for this grant, so `offline_access` is not requested.
    scopes = [one for one in requested_scopes(settings, found) if one != "offline_access"]
    signing = MachineGrant(endpoint, key, found.issuer.signing, random, clock)
    tokens = yield from signing.send(found.resource, scopes)
    id = machine_id(settings.place, auth.client_id)
    return new_login(settings, found, client, tokens, id, auth.client_id, scopes, clock())


def renew_machine(
    login: Login, auth: AuthSettings, key: AssertionKey | None, random: Random, clock: Clock
) -> Flow[Tokens]:
    """Request another token at the same place, with the credentials that are configured now."""
    client = replace(login.client, secret=auth.client_secret)
    endpoint = TokenEndpoint(login.token_endpoint, login.facts.issuer, client)
    signing = MachineGrant(endpoint, key, login.signing, random, clock)
    return (yield from signing.send(login.resource, login.facts.scopes))


class MachineGrant:
    """Sends the grant, each time with a new signature."""

    def __init__(
        self,
        endpoint: TokenEndpoint,
        key: AssertionKey | None,
        algorithms: Sequence[str],
        random: Random,
        clock: Clock,
    ) -> None:
        self._endpoint = endpoint
        self._key = key
        self._algorithms = algorithms
        self._random = random
        self._clock = clock

    def send(self, resource: str, scopes: Sequence[str]) -> Flow[Tokens]:
        """Return the tokens; raises GrantRefused, which names a clock that is off."""
        now = self._clock()
        try:
            return (yield from self._send(resource, scopes, now))
        except GrantRefused as refused:
            off_s = _off_s(refused.date, now)
            if self._key is None or abs(off_s) <= _MAX_OFF_S:
                raise
            first, date = refused, refused.date
        # The signature is fine and its time is not: an issuer's own clock decides about that.
        try:
            return (yield from self._send(resource, scopes, now + off_s))
        except GrantRefused:
            which = "behind" if off_s > 0 else "ahead of"
            why = f"{first}; the clock of this machine is {abs(off_s):.0f} s {which} that server's"
            raise GrantRefused(why, first.code, date) from None

    def _send(self, resource: str, scopes: Sequence[str], now: float) -> Flow[Tokens]:
        assertion = ""
        if self._key is not None:
            nonce = self._random(16).hex()
            issuer, client = self._endpoint.issuer, self._endpoint.client.id
            assertion = self._key.assertion(client, issuer, self._algorithms, now, nonce)
        return (yield from client_credentials_grant(self._endpoint, resource, scopes, assertion))


def _off_s(date: str, now: float) -> float:
    """Return how far our clock is behind that of an answer; 0 if it does not say."""
    from email.utils import parsedate_to_datetime  # slow to import

    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return 0.0
