"""Stored logins: sealed, private, bound to their place, and never damaged by a second process."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portico.upstream.auth.client_identity import OwnClient
from portico.upstream.auth.flow import LoginError
from portico.upstream.auth.login import Login, LoginFacts, LoginPlace, key_login
from portico.upstream.auth.login_store import LoginStore

PLACE = LoginPlace("https://api.test/mcp", "api")
LOGIN = Login(
    facts=LoginFacts(id="1", place="api", issuer="https://id.test", scopes=("read",)),
    url=PLACE.url,
    access="s3cret-access",
    refresh="s3cret-refresh",
    client=OwnClient("c", "s3cret-client", "client_secret_basic"),
)


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")


def test_a_login_comes_back_whole_and_only_its_facts_are_in_the_clear(tmp_path: Path) -> None:
    LoginStore(str(tmp_path)).save(PLACE.key, LOGIN)
    store = LoginStore(str(tmp_path))
    assert store.load(PLACE.key) == LOGIN
    assert store.facts(PLACE.key) == LOGIN.facts
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in written)
    assert not any(b"s3cret" in path.read_bytes() for path in written)
    assert (tmp_path / "logins").stat().st_mode & 0o777 == 0o700


def test_places_have_logins_of_their_own(tmp_path: Path) -> None:
    store = LoginStore(str(tmp_path))
    store.save(PLACE.key, LOGIN)
    for other in (
        LoginPlace(PLACE.url),
        LoginPlace(PLACE.url, "b"),
        LoginPlace("https://x", "api"),
    ):
        assert store.load(other.key) is None
    for same in ("https://API.test:443/mcp", "https://api.test/mcp?key=s3cret"):
        place = LoginPlace(same, "api")
        assert (place.key, LoginPlace(same).shown) == (PLACE.key, "https://api.test/mcp")


def test_the_seal_holds_for_one_place_and_its_facts(tmp_path: Path) -> None:
    store = LoginStore(str(tmp_path))
    other = LoginPlace("https://evil.test/mcp", "api")
    store.save(PLACE.key, LOGIN)
    (tmp_path / "logins" / PLACE.key).rename(tmp_path / "logins" / other.key)
    with pytest.raises(LoginError, match="was changed, or sealed with another key"):
        store.load(other.key)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\0" * 100, b'{"portico":"login","format":99}\n'])
def test_a_damaged_file_is_an_error_with_a_reason_and_does_not_stop_a_login(
    tmp_path: Path, damage: bytes
) -> None:
    store = LoginStore(str(tmp_path))
    store.save(PLACE.key, LOGIN)
    (tmp_path / "logins" / PLACE.key).write_bytes(damage)
    assert store.facts(PLACE.key) is None
    with pytest.raises(LoginError, match="the stored login"):
        store.load(PLACE.key)
    store.save(PLACE.key, LOGIN)
    assert store.load(PLACE.key) == LOGIN


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    LoginStore(str(tmp_path)).save(PLACE.key, LOGIN)
    (tmp_path / "login-secret").chmod(0o644)
    with pytest.raises(LoginError, match="others can read it; delete it, and log in again"):
        LoginStore(str(tmp_path)).load(PLACE.key)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "logins").write_text("a file")
    store = LoginStore(str(tmp_path))
    for act in (store.check_writable, lambda: store.save(PLACE.key, LOGIN)):
        with pytest.raises(LoginError, match="logins cannot be stored in"):
            act()


def test_clients_are_kept_by_issuer(tmp_path: Path) -> None:
    store = LoginStore(str(tmp_path))
    client = OwnClient("c", "s", "client_secret_post", port=5000)
    store.save_client("https://id.test", client)
    assert store.client_at("https://id.test") == client
    assert store.client_at("https://other.test") is None
    store.save_client("https://id.test", None)
    assert store.client_at("https://id.test") is None


def test_a_removed_login_is_gone_and_removing_it_again_is_no_error(tmp_path: Path) -> None:
    store = LoginStore(str(tmp_path))
    store.save(PLACE.key, key_login(PLACE, "k3y", "X-Api-Key", "2"))
    assert os.listdir(tmp_path / "logins") == [PLACE.key]
    store.remove(PLACE.key)
    store.remove(PLACE.key)
    assert os.listdir(tmp_path / "logins") == []


async def test_one_process_at_a_time_holds_the_lock_and_a_killed_one_loses_it(
    tmp_path: Path,
) -> None:
    store = LoginStore(str(tmp_path))
    script = f"""
import asyncio, sys
from portico.upstream.auth.login_store import LoginStore
async def hold():
    async with LoginStore({str(tmp_path)!r}).lock("k"):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(hold())
"""
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", script]
    other = await asyncio.to_thread(subprocess.Popen, argv, stdin=pipe, stdout=pipe)
    assert other.stdout is not None
    assert other.stdin is not None
    try:
        assert await asyncio.to_thread(other.stdout.readline) == b"held\n"
        waiting = asyncio.create_task(_locked(store))
        assert not (await asyncio.wait({waiting}, timeout=0.1))[0]
        other.kill()
        assert await asyncio.wait_for(waiting, 60)
    finally:
        other.kill()
        other.wait()
        other.stdin.close()
        other.stdout.close()


async def _locked(store: LoginStore) -> bool:
    async with store.lock("k"):
        return True
