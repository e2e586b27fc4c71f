"""`portico inspect --as CLIENT`: what a client would be shown, without starting anything."""

import json
from pathlib import Path

import pytest

from portico.commands.cli.main import main
from tests.fit.named_clients import CLAUDE, GEMINI, NamedClient, window
from tests.fit.recording import books

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    config = books(tmp_path)
    config.write_text(config.read_text() + '[clients.desk]\nexpose = "all"\n')
    return config


def inspected(
    config: Path, client: str, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, str, str]:
    code = main(["inspect", "--as", client, "--config", str(config), *options])
    return code, *capsys.readouterr()


def test_it_shows_what_a_client_is_shown(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for info in (CLAUDE, GEMINI):
        with window(tmp_path / "home", config, modern=False) as one:
            shown[info["name"]] = NamedClient(one, info).result("tools/list")["tools"]
    for name, tools in shown.items():
        code, out, _ = inspected(config, name, capsys, "--json")
        found = json.loads(out)
        assert code == 0
        assert sorted(tool["name"] for tool in found["tools"]) == sorted(t["name"] for t in tools)
        assert found["instructions"].startswith("Portico connects these MCP servers: mine (60")
    code, out, _ = inspected(config, "claude", capsys)
    assert "It is shown every tool: --client claude: it searches tools itself" in out
    assert "60 tools, about" in out
    assert "  mine__book-7" in out
    assert "shown the meta-tools" in inspected(config, "claude-code@2.1.6", capsys)[1]
    assert "shown the meta-tools" in inspected(config, "claude@2.1.6", capsys)[1]
    assert "shown every tool: [clients.desk] expose is all" in inspected(config, "desk", capsys)[1]


def test_servers_that_were_never_listed_are_named(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = inspected(config, "gemini", capsys)
    assert code == 0
    assert "the number of tools was not known" in out
    assert "never listed so far: mine; run `portico serve` once" in out
    assert json.loads(inspected(config, "gemini", capsys, "--json")[1])["unknown_servers"] == [
        "mine"
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("claud", "no client is known as 'claud'; did you mean claude?"),
        ("nobody", "no client is known as 'nobody'; choose from claude, codex, copilot"),
        ("", "no client is known as ''"),
        ("\x1b[31m", "no client is known as '\\x1b[31m'"),
        ("x" * 5000, "no client is known as 'xxx"),
    ],
)
def test_a_client_that_nobody_knows_is_an_error(
    name: str, told: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = inspected(config, name, capsys)
    assert (code, out) == (1, "")
    assert told in err
    assert len(err) < 500


def test_a_component_has_no_clients(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = inspected(config, "claude", capsys, "mine")
    assert code == 2
    assert "--as is for the configured gateway" in err
