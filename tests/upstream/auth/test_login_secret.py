"""The key of stored logins: in a keyring that works, else in a private file."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring as package
import pytest
from keyring.backend import KeyringBackend

from portico.upstream.auth import login_secret
from portico.upstream.auth.flow import LoginError
from portico.upstream.auth.login_secret import FILE, KEYRING, LoginSecret
from tests.upstream.auth.keyrings import (
    FileKeyring,
    ForgetfulKeyring,
    HangingKeyring,
    LockedKeyring,
)

Choose = Callable[[KeyringBackend], None]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Choose]:
    """Chooses the keyring of this process."""
    monkeypatch.setenv("TEST_KEYRING", str(tmp_path / "keyring.json"))
    before = package.get_keyring()
    yield package.set_keyring
    package.set_keyring(before)


def test_a_keyring_that_works_holds_the_key(choose: Choose, tmp_path: Path) -> None:
    choose(FileKeyring())
    where, key = LoginSecret(str(tmp_path)).for_new()
    assert (where, len(key)) == (KEYRING, 32)
    assert LoginSecret(str(tmp_path)).get(KEYRING) == key
    assert not (tmp_path / "login-secret").exists()
    assert LoginSecret(str(tmp_path / "other")).for_new()[1] != key


@pytest.mark.parametrize("keyring", [LockedKeyring(), ForgetfulKeyring()])
def test_without_a_keyring_that_works_the_key_is_in_a_private_file(
    choose: Choose, tmp_path: Path, keyring: KeyringBackend
) -> None:
    choose(keyring)
    where, key = LoginSecret(str(tmp_path)).for_new()
    assert where == FILE
    assert (tmp_path / "login-secret").read_bytes() == key
    assert LoginSecret(str(tmp_path)).get(FILE) == key


def test_a_keyring_that_is_locked_later_is_named_and_the_login_is_kept(
    choose: Choose, tmp_path: Path
) -> None:
    choose(FileKeyring())
    LoginSecret(str(tmp_path)).for_new()
    choose(LockedKeyring())
    with pytest.raises(LoginError, match=r"in the keyring, but .*KeyringLocked.*unlock it"):
        LoginSecret(str(tmp_path)).get(KEYRING)


def test_a_keyring_that_hangs_is_reported_once_and_not_asked_again(
    choose: Choose,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert login_secret.ASK_S == 3.0
    monkeypatch.setattr(login_secret, "ASK_S", 0.05)
    choose(HangingKeyring())
    secret = LoginSecret(str(tmp_path))
    assert [secret.for_new()[0] for _ in range(3)] == [FILE] * 3
    with pytest.raises(LoginError, match="did not answer within"):
        secret.get(KEYRING)
    assert capfd.readouterr().err.count("this process does not use it again") == 1
    asking = [thread for thread in threading.enumerate() if thread.name == "portico-keyring"]
    assert all(thread.daemon for thread in asking)
