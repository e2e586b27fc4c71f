"""Secrets of published servers: variables, or in the keyring once the server is added."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest

from portico.commands.cli.main import main
from portico.core.config.read import read
from tests.commands.cli.test_call_terminal import at_terminal
from tests.commands.console.test_servers_from import SERVER, described
from tests.support.shared import ROOT
from tests.upstream.auth.keyrings import FileKeyring

TOKEN = {"name": "TOKEN", "isSecret": True, "isRequired": True}
NPM = {
    "registryType": "npm",
    "identifier": "weather",
    "environmentVariables": [TOKEN, {"name": "EXTRA", "isSecret": True}],
}
VARIABLES = {"TOKEN": "${TOKEN}"}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The default config of a home of the test's own, and a keyring in a file."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.support.usable_keyring.UsableKeyring")
    monkeypatch.setenv("TEST_KEYRING", str(tmp_path / "keyring.json"))
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    before, usable = keyring.get_keyring(), FileKeyring()
    vars(usable)["priority"] = 5.0
    keyring.set_keyring(usable)
    yield tmp_path / "home" / "config" / "portico.toml"
    keyring.set_keyring(before)


def kept(folder: Path) -> dict[str, str]:
    """All that is in the keyring."""
    file = folder / "keyring.json"
    found: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return found


def written(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(config.read_text())["servers"]
    return found


def add(name: str, source: str, *words: str) -> int:
    return main(["servers", "add", name, "--from", source, *words])


def test_a_secret_moves_to_the_keyring_only_by_a_flag(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = described(tmp_path, packages=[NPM])
    for more in ((), ("--secrets", "env")):
        assert add("plain", source, "--set", "TOKEN=s3cret", "--yes", *more) == 0
        assert written(config)["plain"]["env"] == VARIABLES
        assert main(["servers", "remove", "plain"]) == 0
    assert kept(tmp_path) == {}
    assert add("safe", source, "--set", "TOKEN=s3cret", "--yes", "--secrets", "keyring") == 0
    assert written(config)["safe"]["env"] == {"TOKEN": "keyring:safe.TOKEN"}
    assert kept(tmp_path) == {"portico safe.TOKEN": "s3cret"}
    assert read(str(config)).servers["safe"].env == {"TOKEN": "s3cret"}
    told = capfd.readouterr()
    assert "environment: TOKEN = keyring:safe.TOKEN\n" in told.err
    assert "s3cret" not in told.out + told.err + config.read_text()


def test_a_reference_that_a_person_gives_stays(config: Path, tmp_path: Path) -> None:
    source = described(tmp_path, packages=[NPM])
    given = ("--set", "TOKEN=${MINE}", "--set", "EXTRA=more", "--yes", "--secrets", "keyring")
    assert add("mixed", source, *given) == 0
    assert written(config)["mixed"]["env"] == {"TOKEN": "${MINE}", "EXTRA": "keyring:mixed.EXTRA"}
    assert kept(tmp_path) == {"portico mixed.EXTRA": "more"}


def test_the_text_around_a_secret_is_kept_with_it_and_a_url_has_a_variable(
    config: Path, tmp_path: Path
) -> None:
    secret = {"isSecret": True, "isRequired": True}
    header = {"name": "Authorization", "value": "Bearer {token}", "variables": {"token": secret}}
    remote = {
        "type": "streamable-http",
        "url": "https://acme.test/{tenant}/mcp",
        "variables": {"tenant": secret},
        "headers": [header],
    }
    source = described(tmp_path, remotes=[remote])
    given = ("--set", "token=s3cret", "--set", "tenant=t-1", "--yes", "--secrets", "keyring")
    assert add("acme", source, *given) == 0
    entry = written(config)["acme"]
    assert entry["headers"] == {"Authorization": "keyring:acme.Authorization"}
    assert entry["url"] == "https://acme.test/${ACME_TENANT}/mcp"
    assert kept(tmp_path) == {"portico acme.Authorization": "Bearer s3cret"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--yes", "--secrets", "keyring"], "TOKEN needs a value for the keyring"),
        (["--yes", "--secrets", "plain"], "--secrets cannot be 'plain'"),
        (["--secrets", "keyring", "--set", "TOKEN=s"], "no terminal to confirm at"),
    ],
)
def test_a_mistake_is_explained_and_stores_nothing(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert add("x", described(tmp_path, packages=[NPM]), *words) in (1, 2)
    assert said in capfd.readouterr().err
    assert kept(tmp_path) == {}
    assert not config.exists()


def test_without_a_keyring_the_flag_is_refused_and_nothing_is_added(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keyring.set_keyring(FileKeyring())  # one that nobody would choose
    words = ("--set", "TOKEN=s", "--yes", "--secrets", "keyring")
    assert add("x", described(tmp_path, packages=[NPM]), *words) == 1
    assert "there is no keyring" in capfd.readouterr().err
    assert not config.exists()
    assert main(["servers", "add", "x", "--use", "npm", "--", "npx"]) == 2
    assert "--use works only with --from" in capfd.readouterr().err


@pytest.mark.slow
def test_at_a_terminal_a_person_picks_the_place_and_types_the_secret(
    config: Path, tmp_path: Path
) -> None:
    source = described(tmp_path, packages=[NPM])
    for answer, added in (("n", False), ("y", True)):
        with at_terminal("servers", "add", "safe", "--from", source) as terminal:
            terminal.answer("TOKEN, EXTRA is secret. Keep it in: [k]eyring, [v]ariable: ", "k")
            terminal.answer("safe: TOKEN (Enter to use a variable): ", "s3cret")
            terminal.answer("safe: EXTRA (Enter to use a variable): ", "")
            terminal.until("environment: TOKEN = keyring:safe.TOKEN")
            terminal.answer("Add it? [y/N] ", answer)
            assert terminal.end() == (0 if added else 1)
        assert "s3cret" not in terminal.screen
        assert kept(tmp_path) == ({"portico safe.TOKEN": "s3cret"} if added else {})
        assert config.exists() is added


@pytest.mark.slow
def test_a_nuget_package_is_run_by_dnx(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without .NET here, the `dnx` of this test only reads the words that the real one takes."""
    (tmp_path / "server.py").write_text(SERVER)
    dnx = tmp_path / "bin" / "dnx"
    dnx.parent.mkdir()
    dnx.write_text(
        f'#!/bin/sh\n[ "$1 $2 $3" = "Acme.Weather@1.2.3 --yes --" ] || exit 9\nshift 3\n'
        f'cd {tmp_path} && exec python3 server.py "$@"\n'
    )
    dnx.chmod(0o755)
    monkeypatch.setenv("PATH", str(dnx.parent), prepend=":")
    package = {
        "registryType": "nuget",
        "identifier": "Acme.Weather",
        "version": "1.2.3",
        "runtimeHint": "dnx",
        "packageArguments": [{"type": "positional", "value": "serve"}],
        "environmentVariables": [{"name": "UNIT", "value": "metric"}],
    }
    source = described(tmp_path, packages=[package])
    assert add("weather", source, "--yes", "--use", "nuget") == 0
    told = capfd.readouterr().err
    assert "command:     dnx Acme.Weather@1.2.3 --yes -- serve\n" in told
    assert main(["servers", "test", "weather"]) == 0
    assert "serve metric" in capfd.readouterr().out
