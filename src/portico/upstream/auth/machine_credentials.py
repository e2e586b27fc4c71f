"""The credentials of a machine: requested when they are needed, shared by all its processes."""

import asyncio
import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.challenge import Challenge
from portico.upstream.auth.client_assertion import AssertionKey, read_key
from portico.upstream.auth.flow import IssuerUnavailable, LoginError, LoginNeeded
from portico.upstream.auth.flow_runner import FlowRunner, address_rule, probe
from portico.upstream.auth.login import Login, LoginFacts, LoginPlace, machine_id
from portico.upstream.auth.login_credentials import RETRY_S, LoginCredentials
from portico.upstream.auth.login_flow import LoginSettings
from portico.upstream.auth.login_store import LoginStore
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


class MachineCredentials(LoginCredentials):
    """A login that needs no person: it is made, renewed and extended where it is needed."""

    def __init__(
        self,
        place: LoginPlace,
        settings: AuthSettings,
        store: LoginStore,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._machine = MachineLogin(place, settings, clock)
        self._own_id = machine_id(place, settings.client_id)
        self._failure: LoginNeeded | None = None
        self._failed_until = 0.0
        super().__init__(place, settings, store, clock=clock)

    def _is_own(self, facts: LoginFacts) -> bool:
        return facts.id == self._own_id

    def _account(self) -> str:
        return self._own_id

    def _can_renew(self, login: Login) -> bool:
        return True

    async def _missing(self, challenge: Challenge | None, refused: str) -> None:
        """Log in, unless another process did so meanwhile."""
        async with self._store.lock(self.place.key):
            stored = await self._load()
            if stored is None or stored.value == refused or self._clock() >= stored.fresh_until:
                stored = await self._log_in(stored, challenge)
            self._use_login(stored)

    async def _refresh(self, login: Login) -> Login:
        """Request another token; if that is refused, discover again: the issuer may have moved."""
        self._check_failure()
        try:
            return await self._save(login.renewed(await self._machine.renew(login), self._clock()))
        except IssuerUnavailable:
            raise
        except LoginError:
            return await self._log_in(login, None)

    async def _more_scopes(self, scopes: tuple[str, ...]) -> None:
        """Request the missing scopes, too; that needs no consent of a person."""
        async with self._store.lock(self.place.key):
            stored = await self._load()
            if stored is None or stored.value == self._value:
                stored = await self._log_in(stored, None, scopes)
            self._use_login(stored)

    async def _log_in(
        self, before: Login | None, challenge: Challenge | None, scopes: tuple[str, ...] = ()
    ) -> Login:
        self._check_failure()
        try:
            login = await self._machine.obtain(before, challenge, scopes)
        except IssuerUnavailable:
            raise
        except LoginError as error:
            self._failure = self._need(f"cannot log in: {error}")
            self._failed_until = self._clock() + RETRY_S
            raise self._failure from None
        if self._facts() is None:
            self._store.remove(self.place.key)  # of a person, or of another client
        return await self._save(login)

    def _check_failure(self) -> None:
        """Raise what was refused a moment ago: calls must not flood an authorization server."""
        if self._failure is not None and self._clock() < self._failed_until:
            raise self._failure

    def links(self) -> None:
        """Return none: no person logs in."""

    def adopt(self) -> None:
        """Use what is stored now; a login that was refused is tried again."""
        self._failure = None
        super().adopt()

    async def _save(self, renewed: Login) -> Login:
        self._failure = None
        facts = replace(renewed.facts, refreshes=True, ends=0.0)
        return await super()._save(replace(renewed, facts=facts, refresh=""))
