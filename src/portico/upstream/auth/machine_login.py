"""Logs a machine in over HTTP, with the credentials of its config."""

import asyncio
import os
from collections.abc import Callable

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.challenge import Challenge
from portico.upstream.auth.client_assertion import AssertionKey, read_key
from portico.upstream.auth.flow_runner import FlowRunner, address_rule, probe
from portico.upstream.auth.login import Login, LoginPlace
from portico.upstream.auth.login_flow import LoginSettings
from portico.upstream.auth.machine_flow import log_in_machine, renew_machine
from portico.upstream.auth.token_request import Tokens


class MachineLogin:
    """The logins of one machine at one place."""

    def __init__(self, place: LoginPlace, auth: AuthSettings, clock: Callable[[], float]) -> None:
        self._place = place
        self._auth = auth
        self._clock = clock

    async def obtain(
        self,
        before: Login | None,
        challenge: Challenge | None = None,
        scopes: tuple[str, ...] = (),
    ) -> Login:
        """Log in; without a challenge, a request to the server obtains one. Raises LoginError."""
        key = await self._key()
        rule = await address_rule(self._place.url, self._auth.issuer)
        settings = LoginSettings(
            place=self._place,
            auth=self._auth,
            challenge=challenge or await probe(self._place.url, rule),
            scopes=scopes,
            before=before,
        )
        return await FlowRunner(rule).run(log_in_machine(settings, key, os.urandom, self._clock))

    async def renew(self, login: Login) -> Tokens:
        """Request another token where the last one came from; raises LoginError."""
        key = await self._key()
        rule = await address_rule(self._place.url, self._auth.issuer)
        flow = renew_machine(login, self._auth, key, os.urandom, self._clock)
        return await FlowRunner(rule).run(flow)

    async def _key(self) -> AssertionKey | None:
        if not self._auth.private_key:
            return None
        return await asyncio.to_thread(read_key, self._auth.private_key, self._auth.private_key_id)
