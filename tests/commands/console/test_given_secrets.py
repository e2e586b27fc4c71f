"""`servers add --env TOKEN=...`: the secret gets a place, and the config a reference to it."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest

from portico.commands.cli.main import main
from portico.core.config.read import read
from tests.commands.cli.test_call_terminal import at_terminal
from tests.upstream.auth.keyrings import FileKeyring

SECRET = "s3cret-value"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default config of a home that is the test's own; not there yet."""
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "config" / "portico.toml"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileKeyring]:
    """A keyring in a file."""
    monkeypatch.setenv("TEST_KEYRING", str(tmp_path / "keyring.json"))
    before, usable = keyring.get_keyring(), FileKeyring()
    vars(usable)["priority"] = 5.0
    keyring.set_keyring(usable)
    yield usable
    keyring.set_keyring(before)


def add(*options: str, name: str = "a") -> int:
    return main(["servers", "add", name, "--env", f"API_TOKEN={SECRET}", *options, "--", "x"])


def test_a_file_that_only_its_user_can_read(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add("--secrets", "file") == 0
    kept = config.parent / "secrets" / "a.API_TOKEN"
    assert SECRET not in config.read_text()
    assert f'API_TOKEN = "file:{kept}"' in config.read_text()
    assert kept.read_text() == SECRET
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert read(config).servers["a"].env == {"API_TOKEN": SECRET}
    said = capsys.readouterr()
    assert f"API_TOKEN is in {kept}, which only you can read" in said.err
    assert SECRET not in said.out + said.err


def test_another_config_has_files_of_its_own(config: Path, tmp_path: Path) -> None:
    other = tmp_path / "project" / "mcp.json"
    other.parent.mkdir()
    assert add("--secrets", "file") == 0
    assert add("--secrets", "file", "--config", str(other)) == 0
    assert len(list((config.parent / "secrets").iterdir())) == 2
    assert SECRET not in other.read_text()
    assert sorted(path.name for path in other.parent.iterdir()) == ["mcp.json"]
    reference = json.loads(other.read_text())["mcpServers"]["a"]["env"]["API_TOKEN"]
    assert Path(reference.removeprefix("file:")).read_text() == SECRET


def test_removing_the_server_names_the_files_that_stay(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.toml"
    assert add("--secrets", "file") == 0
    assert add("--secrets", "file", name="a2") == 0
    assert add("--secrets", "file", "--config", str(other)) == 0
    capsys.readouterr()
    assert main(["servers", "remove", "a"]) == 0
    kept = config.parent / "secrets" / "a.API_TOKEN"
    note = f"portico: its secret remains in {kept}; delete it if nothing uses it\n"
    assert capsys.readouterr().err == note
    assert main(["servers", "remove", "a", "--config", str(other)]) == 0
    assert capsys.readouterr().err.count("its secret remains in ") == 1
    assert kept.read_text() == SECRET


def test_a_name_that_exists_keeps_its_secret(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add("--secrets", "file") == 0
    words = ["servers", "add", "a", "--env", "API_TOKEN=other-value", "--secrets", "file", "x"]
    assert main(words) == 1
    assert "already" in capsys.readouterr().err
    assert (config.parent / "secrets" / "a.API_TOKEN").read_text() == SECRET


def test_without_a_place_it_says_how_to_keep_the_value(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add() == 0
    assert '"${API_TOKEN}"' in config.read_text()
    assert "or keep it with --secrets file" in capsys.readouterr().err


def test_the_keyring_gets_it(config: Path, kept: FileKeyring) -> None:
    assert add("--secrets", "keyring") == 0
    assert 'API_TOKEN = "keyring:a.API_TOKEN"' in config.read_text()
    assert kept.get_password("portico", "a.API_TOKEN") == SECRET
    assert not (config.parent / "secrets").exists()


def test_without_a_keyring_nothing_is_added(
    config: Path, capsys: pytest.CaptureFixture[str], kept: FileKeyring
) -> None:
    vars(kept)["priority"] = 0.0
    assert add("--secrets", "keyring") == 1
    assert "there is no keyring" in capsys.readouterr().err
    assert not config.exists()


def test_a_folder_that_cannot_be_written_adds_nothing(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.parent.mkdir(parents=True)
    (config.parent / "secrets").write_text("a file in the way")
    assert add("--secrets", "file") == 1
    assert "cannot keep API_TOKEN in " in capsys.readouterr().err
    assert not config.exists()


def test_a_published_server_takes_no_file(config: Path) -> None:
    assert main(["servers", "add", "a", "--from", "server.json", "--secrets", "file"]) == 2
    assert not config.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "reference"), [("f", "file:"), ("v", "${API_TOKEN}")])
def test_a_person_is_asked_where_to_keep_it(
    config: Path, answer: str, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    words = ["servers", "add", "a", "--env", f"API_TOKEN={SECRET}", "--", "x"]
    with at_terminal(*words) as terminal:
        terminal.answer("a [f]ile of yours or a [v]ariable? ", answer)
        assert terminal.end() == 0
    assert f'API_TOKEN = "{reference}' in config.read_text()
    assert SECRET not in config.read_text()
