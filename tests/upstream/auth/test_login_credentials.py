"""A login in use: refreshed in time, once, by one process; and a clear end when it has ended."""

import asyncio
import os
import shlex
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.client_identity import OwnClient
from portico.upstream.auth.flow import (
    GrantRefused,
    IssuerUnavailable,
    LoginError,
    LoginNeeded,
    ScopesRefused,
)
from portico.upstream.auth.login import Login, LoginFacts, LoginPlace
from portico.upstream.auth.login_credentials import LoginCredentials
from portico.upstream.auth.login_store import LoginStore
from portico.upstream.auth.token_request import Tokens

PLACE = LoginPlace("https://api.test/mcp", "api")
ISSUER = "https://id.test"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


class Issued:
    """An authorization server that replaces the refresh token with every refresh."""

    def __init__(self, store: LoginStore, life_s: float = 60.0) -> None:
        self.now = 1000.0
        self.store = store
        self.life_s = life_s
        self.refreshes: list[str] = []
        self.fails: Exception | None = None
        self.during: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def refresh(self, login: Login) -> Tokens:
        self.refreshes.append(login.refresh)
        await asyncio.sleep(0)
        if self.during is not None:
            await self.during()
        if self.fails is not None:
            raise self.fails
        number = len(self.refreshes)
        return Tokens(f"access{number}", f"refresh{number}", self.life_s)

    def log_in(self, refresh: str = "refresh0", **facts: Any) -> Login:
        login = Login(
            facts=LoginFacts(id="ann", place="api", issuer=ISSUER, **facts),
            url=PLACE.url,
            access="",
            client=OwnClient("c", port=5000),
        ).renewed(Tokens("access0", refresh, self.life_s), self.now)
        self.store.save(PLACE.key, login)
        return login

    def credentials(self, **settings: Any) -> LoginCredentials:
        return LoginCredentials(
            PLACE,
            AuthSettings(**settings),
            self.store,
            refresh=self.refresh,
            clock=lambda: self.now,
        )


@pytest.fixture
def issued(tmp_path: Path) -> Issued:
    return Issued(LoginStore(str(tmp_path)))


async def header(credentials: LoginCredentials) -> str | None:
    if credentials.header() is None:
        await credentials.obtain()
    return credentials.header()


async def test_without_a_login_nothing_is_sent_and_a_refusal_names_the_command(
    issued: Issued,
) -> None:
    credentials = issued.credentials()
    assert await header(credentials) == ""
    assert credentials.status() is None
    with pytest.raises(LoginNeeded) as caught:
        await credentials.refused(401, 'Bearer scope="a b"')
    assert str(caught.value) == (
        "requires a login (HTTP 401); run `portico servers login api --scope a --scope b`"
    )
    assert (credentials.status() or {})["needed"] == "requires a login (HTTP 401)"


async def test_the_need_of_a_login_stays_until_there_is_one_or_the_server_lets_us_in(
    issued: Issued,
) -> None:
    credentials = issued.credentials()
    for _ in range(2):
        await header(credentials)
        with pytest.raises(LoginNeeded):
            await credentials.refused(401, "")
        await header(credentials)  # the next request begins
        assert (credentials.status() or {})["needed"] == "requires a login (HTTP 401)"
    credentials.accepted()
    assert credentials.status() is None
    issued.log_in()
    credentials.adopt()
    await header(credentials)
    with pytest.raises(LoginNeeded):
        await credentials.refused(403, 'Bearer error="insufficient_scope", scope="x"')
    credentials.accepted()
    assert "requires more scopes" in (credentials.status() or {})["needed"]


async def test_a_login_is_refreshed_a_tenth_of_its_life_before_its_end(issued: Issued) -> None:
    issued.log_in()
    credentials = issued.credentials()
    assert await header(credentials) == "Bearer access0"
    issued.now += 53.9
    assert credentials.header() == "Bearer access0"
    issued.now += 0.1
    assert credentials.header() is None
    assert await header(credentials) == "Bearer access1"
    stored = issued.store.load(PLACE.key)
    assert stored is not None
    assert (stored.access, stored.refresh) == ("access1", "refresh1")


async def test_calls_that_wait_together_refresh_once(issued: Issued) -> None:
    issued.log_in()
    issued.now += 100
    mine, other = issued.credentials(), issued.credentials()
    await asyncio.gather(*(one.obtain() for one in [mine, other] * 10))
    assert issued.refreshes == ["refresh0"]
    assert mine.header() == other.header() == "Bearer access1"


async def test_a_refusal_refreshes_once_and_a_second_one_asks_for_a_login(issued: Issued) -> None:
    issued.log_in()
    credentials = issued.credentials()
    await header(credentials)
    assert await asyncio.gather(*(credentials.refused(401, "") for _ in range(5))) == [True] * 5
    assert issued.refreshes == ["refresh0"]
    for _ in range(3):
        with pytest.raises(LoginNeeded, match="refused the login"):
            await credentials.refused(401, "")
    assert issued.refreshes == ["refresh0"], "no loop"


async def test_a_refusal_uses_what_another_process_has_stored(issued: Issued) -> None:
    issued.log_in()
    mine, other = issued.credentials(), issued.credentials()
    await header(mine), await header(other)
    assert await other.refused(401, "")
    assert await mine.refused(401, "")
    assert issued.refreshes == ["refresh0"]
    assert mine.header() == "Bearer access1"


MORE = 'Bearer error="insufficient_scope", scope="read write"'


async def test_the_scopes_that_a_login_lacks_are_named(issued: Issued) -> None:
    issued.log_in(scopes=("read",))
    credentials = issued.credentials()
    await header(credentials)
    assert await credentials.refused(403, "") is False
    with pytest.raises(LoginNeeded) as caught:
        await credentials.refused(403, MORE)
    assert caught.value.scopes == ("write",)
    assert caught.value.command == "portico servers login api --scope write"


@pytest.mark.parametrize("granted", [("read",), ("read", "write")])
async def test_scopes_that_are_refused_again_and_again_end_after_three_logins(
    issued: Issued, granted: tuple[str, ...]
) -> None:
    login = issued.log_in(scopes=granted)
    for logins in range(4):
        issued.store.save(PLACE.key, replace(login, asked={"write": logins, "read": logins}))
        credentials = issued.credentials()
        await header(credentials)
        kind = LoginNeeded if logins < 3 else ScopesRefused
        with pytest.raises(kind, match="write") as caught:
            await credentials.refused(403, MORE)
        assert type(caught.value) is kind
        assert "write" in caught.value.scopes
    assert "though 3 logins requested them" in str(caught.value)
    assert "run `" not in str(caught.value), "another login would not help"
    status = credentials.status() or {}
    assert status["needed"] == "", "the login itself is fine"


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (" ".join(f"s{number}" for number in range(1000)), "requires 1000 scopes at once"),
        (" ".join(f"scope-{number:030}" for number in range(1000)), "longer than 16384 bytes"),
        ("", "names none"),
    ],
)
async def test_a_challenge_that_no_login_can_meet_names_no_login(
    issued: Issued, challenge: str, said: str
) -> None:
    issued.log_in(scopes=("read",))
    credentials = issued.credentials()
    await header(credentials)
    with pytest.raises(ScopesRefused, match=said) as caught:
        await credentials.refused(403, f'Bearer error="insufficient_scope", scope="{challenge}"')
    assert len(str(caught.value)) < 200


async def test_scopes_of_a_server_stay_words_in_the_command(issued: Issued) -> None:
    credentials = issued.credentials()
    await header(credentials)
    with pytest.raises(LoginNeeded) as caught:
        await credentials.refused(401, 'Bearer scope="$(reboot) ;ls \'x"')
    words = shlex.split(caught.value.command)
    assert words[3:] == ["api", "--scope", "$(reboot)", "--scope", ";ls", "--scope", "'x"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("invalid_grant", "requires a login: the login has ended"),
        ("invalid_client", "the authorization server has forgotten Portico"),
    ],
)
async def test_a_refused_refresh_ends_the_login_for_all_processes_at_once(
    issued: Issued, code: str, said: str
) -> None:
    issued.log_in()
    issued.store.save_client(ISSUER, OwnClient("c", port=5000))
    issued.now += 100
    issued.fails = GrantRefused("no", code)
    with pytest.raises(LoginNeeded, match=said):
        await issued.credentials().obtain()
    with pytest.raises(LoginNeeded, match=said):
        await issued.credentials().obtain()
    assert len(issued.refreshes) == 1, "no loop"
    assert (issued.store.client_at(ISSUER) is None) == (code == "invalid_client")
    assert said in (issued.credentials().status() or {})["needed"]


async def test_something_newer_is_used_and_never_deleted(issued: Issued) -> None:
    issued.log_in()
    issued.now += 100
    issued.fails = GrantRefused("used already", "invalid_grant")

    async def log_in_again() -> None:
        issued.log_in("refresh-new")

    issued.during = log_in_again
    credentials = issued.credentials()
    assert await header(credentials) == "Bearer access0"
    stored = issued.store.load(PLACE.key)
    assert stored is not None
    assert stored.refresh == "refresh-new"


async def test_an_issuer_that_is_unavailable_ends_nothing(issued: Issued) -> None:
    issued.log_in()
    issued.fails = IssuerUnavailable("HTTP 503")
    credentials = issued.credentials()
    issued.now += 55
    assert await header(credentials) == "Bearer access0", "still valid"
    issued.now += 10
    for _ in range(2):
        with pytest.raises(IssuerUnavailable):
            await credentials.obtain()
    issued.fails = None
    assert await header(credentials) == "Bearer access4"
    assert credentials.status() == (credentials.status() or {}) | {"needed": ""}


async def test_an_answer_that_was_never_stored_is_the_reason_of_the_next_login(
    issued: Issued,
) -> None:
    issued.log_in()
    issued.store.mark_refreshing(PLACE.key)  # as a killed process leaves it
    issued.now += 100
    issued.fails = GrantRefused("used already", "invalid_grant")
    with pytest.raises(LoginNeeded, match="a refresh was interrupted before its answer"):
        await issued.credentials().obtain()
    assert not issued.store.is_refreshing(PLACE.key)


async def test_a_caller_that_leaves_does_not_interrupt_a_refresh(issued: Issued) -> None:
    issued.log_in()
    issued.now += 100
    held, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        held.set()
        await go.wait()

    issued.during = wait
    credentials = issued.credentials()
    caller = asyncio.create_task(credentials.obtain())
    await held.wait()
    caller.cancel()
    await asyncio.wait({caller})
    go.set()
    await credentials.close()
    stored = issued.store.load(PLACE.key)
    assert stored is not None
    assert stored.refresh == "refresh1"


async def test_tokens_that_cannot_be_stored_still_serve_this_process(
    issued: Issued, capfd: pytest.CaptureFixture[str]
) -> None:
    issued.log_in()
    issued.now += 100
    folder = issued.store.folder

    async def fill_the_disk() -> None:
        os.rename(folder, f"{folder}.away")
        os.close(os.open(folder, os.O_CREAT))

    issued.during = fill_the_disk
    credentials = issued.credentials()
    assert await header(credentials) == "Bearer access1"
    assert "is lost when this process ends" in capfd.readouterr().err
    os.unlink(folder)
    os.rename(f"{folder}.away", folder)
    issued.during = None
    issued.now += 100
    assert await header(credentials) == "Bearer access2"
    assert issued.refreshes == ["refresh0", "refresh1"]


async def test_another_account_is_announced_or_used_at_once(issued: Issued) -> None:
    issued.log_in()
    credentials = issued.credentials()
    changed: list[str] = []
    credentials.on_changed = lambda: changed.append("changed")
    await header(credentials)
    login = issued.store.load(PLACE.key)
    assert login is not None
    other = Login(facts=LoginFacts(id="bob", place="api"), url=PLACE.url, access="bobs")
    issued.store.save(PLACE.key, other)
    with pytest.raises(LoginError, match="has another login now"):
        await credentials.refused(401, "")
    assert changed == ["changed"]
    credentials.adopt()
    assert (credentials.account, await header(credentials)) == ("bob", "Bearer bobs")


async def test_another_account_that_is_adopted_during_a_refresh_is_the_one_in_use(
    issued: Issued,
) -> None:
    issued.log_in()
    issued.now += 100
    credentials = issued.credentials()
    other = Login(facts=LoginFacts(id="bob", place="api"), url=PLACE.url, access="bobs")

    async def log_in_as_bob() -> None:
        issued.store.save(PLACE.key, other)
        credentials.adopt()

    issued.during = log_in_as_bob
    await credentials.obtain()
    assert credentials.header() in (None, "Bearer bobs"), "never the token of the other account"
    assert await header(credentials) == "Bearer bobs"
    stored = issued.store.load(PLACE.key)
    assert stored is not None
    assert stored.facts.id == "bob"


async def test_a_login_that_was_removed_is_over(issued: Issued) -> None:
    issued.log_in()
    credentials = issued.credentials()
    await header(credentials)
    issued.store.remove(PLACE.key)
    with pytest.raises(LoginNeeded, match="is logged out"):
        await credentials.refused(401, "")


@pytest.mark.parametrize("shift_s", [3600.0, -3600.0])
async def test_a_clock_that_is_set_by_an_hour_costs_a_refresh_at_most(
    issued: Issued, shift_s: float
) -> None:
    issued.log_in()
    credentials = issued.credentials()
    await header(credentials)
    issued.now += shift_s
    assert await header(credentials) in ("Bearer access0", "Bearer access1")
    issued.now += 61  # for the server, the token has expired
    await header(credentials)
    assert await credentials.refused(401, "")
    assert (credentials.header() or "").startswith("Bearer access")


async def test_a_plain_key_goes_into_its_header_and_is_not_refreshed(issued: Issued) -> None:
    from portico.upstream.auth.login import key_login

    issued.store.save(PLACE.key, key_login(PLACE, "k3y", "X-Api-Key", "1"))
    credentials = issued.credentials(key="X-Api-Key")
    assert (await header(credentials), credentials.name) == ("k3y", "x-api-key")
    with pytest.raises(LoginNeeded, match="refused the login"):
        await credentials.refused(401, "")
    assert issued.refreshes == []
