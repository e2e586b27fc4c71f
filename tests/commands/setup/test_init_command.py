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

from portico.commands.cli.main import main
from tests.commands.setup.samples import SAMPLES, on_system, placed
from tests.login.people import Person
from tests.rigs.issuer import IssuerRig
from tests.support.shared import unavailable
from tests.wrap.faults import portico_command, until


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


def test_the_servers_of_a_client_leave_it_only_by_a_flag(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = placed("cursor")
    assert main(["init", "--yes"]) == 0
    told = capsys.readouterr().out
    assert "`portico migrate cursor` removes its own servers, which it now has twice" in told
    assert list(json.loads(file.read_text())["mcpServers"]) == ["github", "docs", "portico"]
    assert main(["init", "--yes", "--no-migrate"]) == 0
    assert list(json.loads(file.read_text())["mcpServers"]) == ["github", "docs", "portico"]
    assert main(["init", "--dry-run", "--migrate"]) == 0
    assert '-    "github": {' in capsys.readouterr().out
    assert main(["init", "--yes", "--migrate"]) == 0
    assert list(json.loads(file.read_text())["mcpServers"]) == ["portico"]
    assert servers_in(home) == ["github", "docs"]
    assert "portico migrate" not in capsys.readouterr().out
    assert main(["migrate", "cursor", "--undo"]) == 0
    assert list(json.loads(file.read_text())["mcpServers"]) == ["github", "docs", "portico"]
    assert main(["init", "--yes", "--migrate", "--no-migrate"]) == 2


class AtBrowser(Person):
    """A person whose client has a server that requires a login."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.home.mkdir()
        self._user = folder / "user"
        file = self._user / ".cursor" / "mcp.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"mcpServers": {"mine": {"url": url}}}))

    def init(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `portico init`."""
        return self.run("init", "--no-install", *words, env={"HOME": str(self._user)})


@pytest.mark.slow
def test_a_login_needs_a_flag_or_an_answer(tmp_path: Path) -> None:
    with IssuerRig() as rig:
        person = AtBrowser(tmp_path, rig.url)
        done = person.init("--yes")
        assert done.returncode == 0, done.stderr
        assert "`portico servers login mine` logs in, if mine requires it" in done.stdout
        assert (rig.registered, person.call("mine", "whoami").returncode) == ([], 1)
        rig.response |= {"code": None, "error": "access_denied"}
        denied = person.init("--yes", "--login", "mine")
        assert "cannot log in at mine: " in denied.stderr
        assert (denied.returncode, "portico servers login mine" in denied.stdout) == (0, True)
        rig.response.clear()
        unknown = person.init("--yes", "--login", "mein")
        assert "mein" in unknown.stderr
        made = person.init("--yes", "--login", "mine")
        assert "logged in at mine" in made.stdout, made.stderr
        assert "portico servers login" not in made.stdout
        assert person.call("mine", "whoami").stdout == "you are ann\n"


@pytest.mark.slow
def test_a_person_logs_in_from_the_terminal(tmp_path: Path) -> None:
    with IssuerRig() as rig, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        person = AtBrowser(tmp_path, rig.url)
        environ = {**person.environment(), "HOME": str(tmp_path / "user")}
        words = portico_command(person.home, "init", "--no-install")
        terminal = Tmux(folder, words, environ)
        try:
            terminal.answer("Import 1 server? [Y]es, [n]o, [c]hoose:", "")
            terminal.answer("Log in at mine now, in your browser? [y/N]", "y")
            assert until(lambda: "exit=0" in terminal.screen()), terminal.screen()
            assert "logged in at mine" in terminal.screen()
        finally:
            terminal.end()
        assert person.call("mine", "whoami").stdout == "you are ann\n"


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
    terminal.answer("Remove them from Windsurf? [Y/n]", "n")
    terminal.answer("Write this? [Y/n]", "n")
    terminal.answer("Remove them from Codex? [Y/n]", "")
    terminal.answer("Write this? [Y/n]", "")
    assert until(lambda: "exit=0" in terminal.screen()), terminal.screen()
    shown = terminal.screen()
    assert "Codex would have these twice, its own and Portico's: docs" in shown
    assert "portico migrate" not in shown
    assert "own  x\n" in shown
    assert "set API_KEY in the environment of the gateway" in shown
    found = tomllib.loads(config_in(home).read_text())["servers"]
    assert list(found) == ["own", "docs"]
    assert found["own"]["env"] == {"API_KEY": "${API_KEY}"}
    assert "portico" not in (home / ".codeium/windsurf/mcp_config.json").read_text()
    codex = tomllib.loads((home / ".codex/config.toml").read_text())
    assert list(codex["mcp_servers"]) == ["github", "portico"]


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
