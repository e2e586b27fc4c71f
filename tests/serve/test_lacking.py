"""A server that lacks a value is not started, and all others are served."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.running import shelf
from tests.serve.gateway import Entry, Pipes, command, result_of, text_in, written
from tests.support.running import WAIT_S
from tests.wrap.faults import until

_LINEAR: Entry = {
    "url": "https://mcp.linear.app/mcp",
    "headers": {"Authorization": "Bearer ${LINEAR_API_KEY}"},
}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINEAR_API_KEY", raising=False)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "words"
    file.write_text("announce one")
    return file


def _portico(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "portico", *words],
        env={**os.environ, "PORTICO_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )


def test_an_unset_variable_breaks_only_its_own_server(tmp_path: Path, words: Path) -> None:
    home = tmp_path / "home"
    config = written(tmp_path / "p.toml", {"shelf": command(shelf(words)), "linear": _LINEAR})
    with Pipes(home, config) as pipes:
        pipes.initialize()
        pipes.call("refresh_tools")
        assert text_in(pipes.execute("shelf__one")) == "one"
        status = pipes.status()
        assert status["shelf"]["error"] == ""
        assert "LINEAR_API_KEY is not set; set it" in status["linear"]["error"]
        assert status["linear"]["state"] == "failed"
        said = pipes.said("search_tools", query="create an issue")
        assert "linear" in said
        assert pipes.stderr().count("LINEAR_API_KEY is not set") == 1
        assert f"{config}:7: servers.linear.headers.Authorization: " in pipes.stderr()
    shown = _portico(home, "status", "--config", str(config))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "LINEAR_API_KEY is not set" in shown.stdout
    assert _portico(home, "call", "shelf__one", "--config", str(config)).stdout == "one\n"
    found = _portico(home, "search", "one", "--config", str(config))
    assert found.returncode == 0, found.stderr
    assert "shelf__one" in found.stdout


def test_what_is_known_of_it_is_still_found_and_a_call_says_what_is_missing(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    entry = command(shelf(words), env={"ACCOUNT": "${SHELF_ACCOUNT}", "KEY": "file:secret"})
    config = written(tmp_path / "p.toml", {"shelf": entry})
    monkeypatch.setenv("SHELF_ACCOUNT", "ana")
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    with Pipes(home, config) as pipes:
        pipes.initialize()
        pipes.call("refresh_tools")
        assert text_in(pipes.execute("shelf__of-ana")) == "of-ana"
        assert until(lambda: any((home / "cache" / "catalogs").glob("*.catalog")))
    monkeypatch.delenv("SHELF_ACCOUNT")
    secret.unlink()
    with Pipes(home, config) as pipes:
        pipes.initialize()
        assert "shelf__one" in pipes.said("search_tools", query="one")
        for _ in range(12):  # however often it was tried
            refused = result_of(pipes.call("execute_tool", name="shelf__one", arguments={}))
            assert refused["isError"]
            assert "SHELF_ACCOUNT is not set" in text_in(refused)
        error = pipes.status()["shelf"]["error"]
        assert "SHELF_ACCOUNT is not set" in error
        assert "secret cannot be read" in error
    known = json.loads(_portico(home, "status", "--json", "--config", str(config)).stdout)
    assert known[0]["servers"][0]["tools"] == 3


def test_a_reload_with_an_unset_variable_keeps_the_others(tmp_path: Path, words: Path) -> None:
    entries = {"shelf": command(shelf(words))}
    config = written(tmp_path / "p.toml", entries)
    with Pipes(tmp_path / "home", config) as pipes:
        pipes.initialize()
        pipes.call("refresh_tools")
        written(config, {**entries, "linear": _LINEAR})
        assert until(lambda: "linear" in pipes.status())
        assert "LINEAR_API_KEY is not set" in pipes.status()["linear"]["error"]
        assert text_in(pipes.execute("shelf__one")) == "one"
        fine = {"url": _LINEAR["url"], "headers": {"A": "${LINEAR_API_KEY:-none}"}}
        written(config, {**entries, "linear": {**fine, "enabled": False}})
        assert until(lambda: "linear" not in pipes.status())
