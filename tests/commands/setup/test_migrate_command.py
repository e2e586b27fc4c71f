"""`portico migrate`: a client's servers move into the config, and Portico takes their place."""

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from portico.commands.cli.main import main
from portico.core.config.client_table import CLIENTS, this_system
from portico.core.documents.document import open_document
from tests.commands.setup.samples import SAMPLES, SYSTEMS, on_system, placed


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    on_system(monkeypatch, tmp_path / "home")
    return tmp_path / "home" / "portico" / "config" / "portico.toml"


def data_of(file: Path) -> dict[str, Any]:
    return open_document(str(file)).data


def without_servers(client: str, data: dict[str, Any]) -> dict[str, Any]:
    """All other settings of a client's file."""
    rest = copy.deepcopy(data)
    table = rest
    for key in CLIENTS[client].section[:-1]:
        table = table[str(key)]
    del table[str(CLIENTS[client].section[-1])]
    for about in rest.get("projects", {}).values():
        about.pop("mcpServers")
    return rest


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("client", SAMPLES)
def test_each_clients_servers_move_once_and_return(
    client: str, system: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_system(monkeypatch, config.parents[2], system)
    file = placed(client)
    before = data_of(file)
    assert main(["migrate", client, "--yes"]) == 0
    assert tomllib.loads(config.read_text())["servers"] == SAMPLES[client].servers
    after = data_of(file)
    assert list(after[str(CLIENTS[client].section[0])]) == ["portico"]
    assert without_servers(client, after) == without_servers(client, before)
    moved = ("projects", str(CLIENTS[client].section[0]))
    assert [key for key in after if key not in moved] == [k for k in before if k not in moved]
    both = (config.read_bytes(), file.read_bytes())
    assert main(["migrate", client, "--yes"]) == 0
    assert (config.read_bytes(), file.read_bytes()) == both
    assert main(["migrate", client, "--undo"]) == 0
    assert file.read_text() == SAMPLES[client].text
    assert not config.exists()


@pytest.mark.parametrize(
    ("client", "kept"),
    [
        ("vscode", ("\t// My servers.\n", '"password": true },\n\t],')),
        ("zed", ("// Zed settings\n", '"vim_mode": false')),
        ("codex", ('model = "gpt-5" # the large one\n', "[tui]\nnotifications = true\n")),
        ("opencode", ('"theme": "system", // as the desktop\n',)),
    ],
)
def test_comments_outside_of_the_entries_stay(
    client: str, kept: tuple[str, ...], config: Path
) -> None:
    file = placed(client)
    assert main(["migrate", client, "--yes"]) == 0
    assert all(text in file.read_text() for text in kept)


def test_a_client_with_an_older_file_alone_gets_portico_too(config: Path) -> None:
    old = Path(CLIENTS["vscode"].file(this_system())).with_name("settings.json")
    old.parent.mkdir(parents=True)
    old.write_text(json.dumps({"mcp": {"servers": {"a": {"command": "x"}}}, "zoom": 1}))
    assert main(["migrate", "vscode", "--yes"]) == 0
    assert list(tomllib.loads(config.read_text())["servers"]) == ["a"]
    assert json.loads(old.read_text()) == {"mcp": {"servers": {}}, "zoom": 1}
    assert list(json.loads(old.with_name("mcp.json").read_text())["servers"]) == ["portico"]


def test_entries_that_were_not_imported_stay(config: Path) -> None:
    entries = {"odd": {"type": "carrier", "url": "x"}, "a": {"command": "a"}, "b": {"command": "b"}}
    file = placed("cursor", json.dumps({"mcpServers": entries}, indent=1))
    assert main(["migrate", "cursor", "--yes", "--only", "a"]) == 0
    assert list(data_of(file)["mcpServers"]) == ["odd", "b", "portico"]
    assert list(tomllib.loads(config.read_text())["servers"]) == ["a"]


def test_an_undo_returns_the_entries_and_keeps_a_later_one(config: Path) -> None:
    file = placed("cursor")
    servers = data_of(file)["mcpServers"]
    assert main(["migrate", "cursor", "--yes"]) == 0
    data = data_of(file)
    data["mcpServers"]["later"] = {"command": "later"}
    file.write_text(json.dumps(data))
    assert main(["migrate", "cursor", "--undo"]) == 0
    assert data_of(file)["mcpServers"] == {"later": {"command": "later"}, **servers}


def test_a_dry_run_shows_both_files_without_secrets(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"command": "x", "env": {"API_KEY": "k-123456"}}
    file = placed("windsurf", json.dumps({"mcpServers": {"a": entry}}, indent=2))
    before = file.read_bytes()
    assert main(["migrate", "windsurf", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert f"+++ {config}\n" in shown
    assert f"+++ {file}\n" in shown
    assert '-        "API_KEY": "********"' in shown
    assert "k-123456" not in shown
    assert file.read_bytes() == before
    assert not config.exists()


def test_a_clients_file_that_cannot_be_written_keeps_its_servers(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = placed("cursor")
    text = file.read_text()
    assert main(["migrate", "cursor", "--yes", "--only", "github"]) == 0
    assert main(["migrate", "cursor", "--undo"]) == 0
    moves = config.parents[1] / "state" / "moves"
    for old in moves.iterdir():
        old.unlink()
    moves.rmdir()
    moves.write_text("")  # no backup can be written, so nothing may change
    assert main(["migrate", "cursor", "--yes"]) == 1
    assert "no backup can be written" in capsys.readouterr().err
    assert file.read_text() == text


def test_an_entry_of_several_projects_leaves_all_of_them(config: Path, tmp_path: Path) -> None:
    shop, site = tmp_path / "shop", tmp_path / "site"
    projects = {}
    for folder in (shop, site):
        folder.mkdir()
        projects[str(folder)] = {"mcpServers": {"db": {"command": "pg"}}, "trusted": True}
    file = placed("claude", json.dumps({"projects": projects}))
    assert main(["migrate", "claude", "--yes"]) == 0
    emptied = {"mcpServers": {}, "trusted": True}
    assert data_of(file)["projects"] == {str(shop): emptied, str(site): emptied}
    assert list(data_of(file)["mcpServers"]) == ["portico"]


def test_servers_that_have_entries_of_their_own_keep_their_names(config: Path) -> None:
    file = placed("codex")
    assert main(["migrate", "codex", "--per-server", "--yes"]) == 0
    found = data_of(file)["mcp_servers"]
    assert {name: entry["args"] for name, entry in found.items()} == {
        name: ["serve", "--server", name, "--client", "codex"] for name in ("github", "docs")
    }
    assert main(["migrate", "codex", "--undo"]) == 0
    assert file.read_text() == SAMPLES["codex"].text
