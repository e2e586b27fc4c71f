"""A config that somebody else could have written is refused, by every command that reads it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from portico.core.config.read import read
from portico.core.documents.problems import ConfigError
from tests.support.running import WAIT_S

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such modes")
_COMMANDS = [
    ["serve", "--stdio"],
    ["status"],
    ["search", "anything"],
    ["servers", "list"],
    ["servers", "add", "x", "--", "true"],
    ["call", "other__tool"],
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "my config.toml"
    file.write_text('[servers.other]\ncommand = "true"\n')
    file.chmod(0o600)
    return file


def _not_mine(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the file be somebody else's."""
    if os.geteuid() == 0:
        os.chown(config, 12345, 12345)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr("os.geteuid", lambda: other)


def _refusal(config: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read(config)
    return str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400, 0o700])
def test_a_config_of_ones_own_is_read(config: Path, mode: int) -> None:
    config.chmod(mode)
    assert list(read(config).servers) == ["other"]
    assert read(config).warnings == ()


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o777])
def test_a_config_that_everybody_can_write_to_is_refused(config: Path, mode: int) -> None:
    config.chmod(mode)
    said = _refusal(config)
    assert f"refused: every user can write to it (mode {mode:04o}); run `chmod o-w '" in said
    config.chmod(mode & ~0o002)
    assert read(config).servers


def test_a_config_of_another_user_is_refused(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _not_mine(config, monkeypatch)
    said = _refusal(config)
    assert "refused: it belongs to user " in said
    assert f"`chown {os.geteuid()} '" in said


def test_a_config_of_roots_is_read_by_everybody(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if config.stat().st_uid:
        pytest.skip("only root can make such a file")
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert read(config).servers


@pytest.mark.parametrize("mode", [0o777, 0o703])
def test_a_config_that_everybody_can_replace_is_refused(config: Path, mode: int) -> None:
    config.parent.chmod(mode)
    said = _refusal(config)
    assert f"every user can replace it, because all can write to {config.parent}" in said
    config.parent.chmod(0o1777)  # as /tmp is: only its owner can replace it
    assert read(config).servers


def test_a_link_is_as_good_as_what_it_leads_to(config: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "p.toml"
    link.symlink_to(config)
    assert read(link).servers
    config.parent.chmod(0o777)
    assert "can replace it" in _refusal(link)
    config.parent.chmod(0o700)
    link.parent.chmod(0o777)
    assert "can replace it" in _refusal(link)


def test_a_config_that_a_group_can_write_to_is_read_with_a_warning(config: Path) -> None:
    config.chmod(0o660)
    (warning,) = read(config).warnings
    assert "can write to it (mode 0660)" in warning
    assert "run `chmod g-w '" in warning


def test_a_secret_that_everybody_can_write_to_is_not_used(config: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o666)
    config.write_text('[servers.other]\ncommand = "true"\nenv = { KEY = "file:secret" }\n')
    assert "every user can write to" in read(config).servers["other"].problem
    secret.chmod(0o644)
    assert read(config).servers["other"].env == {"KEY": "s3cret"}


@pytest.mark.parametrize("words", _COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_every_command_refuses_it_and_says_what_to_run(config: Path, words: list[str]) -> None:
    config.chmod(0o666)
    before = config.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "portico", *words[:2], "--config", str(config), *words[2:]]
        if words[0] == "servers"
        else [sys.executable, "-m", "portico", words[0], "--config", str(config), *words[1:]],
        env={**os.environ, "PORTICO_HOME": str(config.parent / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1, done
    assert "every user can write to it" in done.stderr, done
    assert "chmod o-w" in done.stderr
    assert config.read_bytes() == before
