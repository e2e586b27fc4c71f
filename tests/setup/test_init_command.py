"""`portico init`: from the clients that are here to a config that they use."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from portico.cli.main import main
from tests.setup.samples import SAMPLES, on_system, placed
from tests.support.shared import unavailable
from tests.wrap.faults import until


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    on_system(monkeypatch, tmp_path / "home")
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return tmp_path / "home"


def config_in(home: Path) -> Path:
    return home / "portico" / "config" / "portico.toml"


def servers_in(home: Path) -> list[str]:
    return list(tomllib.loads(config_in(home).read_text()).get("servers", {}))


def test_with_yes_all_that_is_shown_is_imported_and_installed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [placed(client) for client in ("cursor", "codex")]
    assert main(["init", "--yes"]) == 0
    assert servers_in(home) == ["github", "docs", "github-codex", "docs-codex"]
    assert all("portico" in file.read_text() for file in files)
    shown = capsys.readouterr().out
    assert "npx -y @modelcontextprotocol/server-github" in shown
    assert f"the config is {config_in(home)}" in shown
    before = config_in(home).read_bytes(), [file.read_bytes() for file in files]
    assert main(["init", "--yes"]) == 0
    assert (config_in(home).read_bytes(), [file.read_bytes() for file in files]) == before
    for client, file in zip(("cursor", "codex"), files, strict=True):
        assert main(["install", client, "--undo"]) == 0
        assert file.read_text() == SAMPLES[client].text


def test_a_command_of_a_project_is_never_approved(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(".mcp.json").absolute()
    file.write_text('{"mcpServers": {"evil": {"command": "rm"}}}')
    assert main(["init", "--yes"]) == 0
    assert f"{file} belongs to this project and is not imported here" in capsys.readouterr().out
    assert servers_in(home) == []
    assert read_ok(home)


def read_ok(home: Path) -> bool:
    """True if the config can be read, and says how to go on."""
    return "portico servers add NAME COMMAND" in config_in(home).read_text()


def test_each_question_has_a_flag(home: Path) -> None:
    cursor, codex = placed("cursor"), placed("codex")
    assert main(["init", "--yes", "--from", "codex", "--install", "cursor"]) == 0
    assert servers_in(home) == ["github", "docs"]
    assert "portico" in cursor.read_text()
    assert codex.read_text() == SAMPLES["codex"].text
    config_in(home).unlink()
    assert main(["init", "--yes", "--no-import", "--no-install"]) == 0
    assert servers_in(home) == []


def test_a_secret_is_not_moved_by_yes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", ModuleType("keyring"))  # any use of it would raise
    entry = {"command": "x", "env": {"API_KEY": "k-1"}}
    placed("cursor", json.dumps({"mcpServers": {"a": entry}}))
    assert main(["init", "--yes"]) == 0
    assert tomllib.loads(config_in(home).read_text())["servers"]["a"] == entry


def test_a_malformed_file_is_named_and_the_others_are_used(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed("cursor")
    broken = placed("gemini", '{"mcpServers": {\n')
    assert main(["init", "--yes"]) == 0
    told = capsys.readouterr().err
    assert f"{broken}:2:1: not valid JSON" in told
    assert "Gemini CLI is skipped" in told
    assert broken.read_text() == '{"mcpServers": {\n'
    assert servers_in(home) == ["github", "docs"]


def test_without_a_terminal_nothing_happens_without_a_yes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = placed("cursor")
    assert main(["init"]) == 1
    assert "there is no terminal to ask at; add --yes" in capsys.readouterr().err
    assert main(["init", "--dry-run"]) == 0
    assert "+[servers.github]" in capsys.readouterr().out
    assert not config_in(home).exists()
    assert file.read_text() == SAMPLES["cursor"].text
    assert main(["init", "--from", "cursr"]) == 1
    assert "did you mean cursor?" in capsys.readouterr().err


class Tmux:
    """A command in a real terminal of its own."""

    def __init__(self, folder: str, words: list[str], environ: dict[str, str]) -> None:
        if shutil.which("tmux") is None:
            unavailable("tmux is not there")
        self._tmux = ["tmux", "-f", "/dev/null", "-S", f"{folder}/t"]
        self._environ = {**environ, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        program = f"{subprocess.list2cmdline(words)}; echo exit=$?; cat"
        self._run("new-session", "-d", "-x", "160", "-y", "60", program)

    def screen(self) -> str:
        """All that the terminal shows."""
        return self._run("capture-pane", "-p", "-J")

    def answer(self, shown: str, text: str) -> None:
        """Wait for a question at the end of the screen, and type."""
        assert until(lambda: self.screen().rstrip().endswith(shown.rstrip())), self.screen()
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    def end(self) -> None:
        self._run("kill-server")

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._environ, capture_output=True, text=True, check=True
        )
        return done.stdout


@pytest.fixture
def terminal(home: Path) -> Iterator[Tmux]:
    """`portico init` in a terminal, with two clients and a secret in one of them."""
    placed("codex")
    entry = {"command": "x", "env": {"API_KEY": "k-1"}}
    placed("windsurf", json.dumps({"mcpServers": {"own": entry}}))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # the path of a socket is short
        words = [sys.executable, "-m", "portico", "init"]
        without_keyring = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        started = Tmux(folder, words, {**os.environ, **without_keyring})
        try:
            yield started
        finally:
            started.end()


@pytest.mark.slow
def test_a_person_picks_servers_in_a_terminal(home: Path, terminal: Tmux) -> None:
    terminal.answer("Import 1 server? [Y]es, [n]o, [c]hoose:", "")
    terminal.answer("Keep it in: [v]ariable, [p]lain text:", "v")
    terminal.answer("Import 2 servers? [Y]es, [n]o, [c]hoose:", "c")
    terminal.answer("Import github? [Y/n]", "n")
    terminal.answer("Import docs? [Y/n]", "y")
    terminal.answer("Write this? [Y/n]", "n")
    terminal.answer("Write this? [Y/n]", "")
    assert until(lambda: "exit=0" in terminal.screen()), terminal.screen()
    shown = terminal.screen()
    assert "own  x\n" in shown
    assert "set API_KEY in the environment of the gateway" in shown
    found = tomllib.loads(config_in(home).read_text())["servers"]
    assert list(found) == ["own", "docs"]
    assert found["own"]["env"] == {"API_KEY": "${API_KEY}"}
    assert "portico" not in (home / ".codeium/windsurf/mcp_config.json").read_text()
    assert "[mcp_servers.portico]" in (home / ".codex/config.toml").read_text()


@pytest.mark.slow
def test_a_person_who_declines_changes_nothing(home: Path, terminal: Tmux) -> None:
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    terminal.answer("Import 1 server? [Y]es, [n]o, [c]hoose:", "n")
    terminal.answer("Import 2 servers? [Y]es, [n]o, [c]hoose:", "n")
    for _ in range(2):
        terminal.answer("Write this? [Y/n]", "n")
    assert until(lambda: "exit=0" in terminal.screen()), terminal.screen()
    assert {path: path.read_bytes() for path in files} == files
    assert servers_in(home) == []
