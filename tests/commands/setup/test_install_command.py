"""`portico install`: one entry in a client's file, nothing else changed, and back again."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from portico.commands.cli.main import main
from portico.commands.setup.moves import Mover
from portico.core.config.client_table import CLIENTS, this_system
from portico.core.documents.document import open_document
from portico.core.documents.edit import EntryChange, changed_entries
from tests.commands.setup.samples import SAMPLES, SYSTEMS, on_system, placed


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    on_system(monkeypatch, tmp_path / "home")
    return tmp_path / "home"


def servers_of(client: str, file: Path) -> dict[str, Any]:
    """The client's own table of servers."""
    table: Any = open_document(str(file)).data
    for key in CLIENTS[client].section:
        table = table[key]
    found: dict[str, Any] = table
    return found


def argv_of(entry: dict[str, Any]) -> list[str]:
    command = entry["command"]
    return command if isinstance(command, list) else [command, *entry["args"]]


def survivors(text: str) -> list[str]:
    """The lines of a file, whatever comma an addition needs at their ends."""
    return [line.replace('" }\n', '" },\n').rstrip(",") for line in text.splitlines()]


def is_within(old: str, new: str) -> bool:
    """True if every line of the old text is in the new one, in order."""
    lines = iter(survivors(new))
    return all(line in lines for line in survivors(old))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("client", SAMPLES)
def test_each_client_gets_one_entry_once_and_loses_it_again(
    client: str, system: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_system(monkeypatch, home, system)
    file = placed(client)
    before = servers_of(client, file)
    assert main(["install", client, "--yes"]) == 0
    found = servers_of(client, file)
    ours = found.pop("portico")
    assert found == before
    assert argv_of(ours)[-3:] == ["serve", "--client", client]
    assert is_within(SAMPLES[client].text, file.read_text())
    written = file.read_bytes()
    assert main(["install", client, "--yes"]) == 0
    assert file.read_bytes() == written
    assert main(["install", client, "--undo"]) == 0
    assert file.read_text() == SAMPLES[client].text


@pytest.mark.parametrize("client", SAMPLES)
def test_a_client_without_a_file_gets_one_and_loses_it_again(client: str, home: Path) -> None:
    file = Path(CLIENTS[client].file(this_system()))
    assert main(["install", client, "--yes"]) == 0
    assert list(servers_of(client, file)) == ["portico"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert main(["install", client, "--undo"]) == 0
    assert not file.exists()


def test_a_dry_run_shows_a_diff_and_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = placed("zed")
    assert main(["install", "zed", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert f"--- {file}\n" in shown
    assert '+    "portico": {' in shown
    assert file.read_text() == SAMPLES["zed"].text


def test_keys_that_a_person_added_to_the_entry_stay(home: Path) -> None:
    entry = {"command": "/old/portico", "args": ["serve"], "env": {"A": "1"}, "disabled": True}
    file = placed("cursor", json.dumps({"mcpServers": {"portico": entry}}, indent=2))
    assert main(["install", "cursor", "--yes"]) == 0
    found = servers_of("cursor", file)["portico"]
    assert (found["env"], found["disabled"]) == ({"A": "1"}, True)
    assert found["args"] == ["serve", "--client", "cursor"]


def test_another_server_named_portico_is_not_overwritten(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '{"mcpServers": {"portico": {"command": "greek-temple"}}}'
    file = placed("cursor", text)
    assert main(["install", "cursor", "--yes"]) == 1
    assert "portico is a server of its own there" in capsys.readouterr().err
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("client", "text", "said"),
    [
        ("cursor", '{"mcpServers": {\n "a": }', ":2:7: not valid JSON"),
        ("cursor", '{"mcpServers": 5}', ": mcpServers must be a table; fix it first"),
        ("cursor", '{"mcpServers": {}, "mcpServers": {}}', ":1: mcpServers is set twice"),
        ("codex", "[mcp_servers\n", ":1:13: not valid TOML"),
        ("codex", "mcp_servers = { a = { command = 'x' } }\n", "edit the file by hand"),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_named_and_left_alone(
    client: str, text: str, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = placed(client, text)
    assert main(["install", client, "--yes"]) == 1
    told = capsys.readouterr().err
    assert str(file) in told
    assert said in told
    assert file.read_text() == text


def test_each_server_may_have_its_own_entry(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = placed("codex", "")
    assert main(["install", "codex", "--per-server", "--yes"]) == 1
    assert "has no servers; import or add one first" in capsys.readouterr().err
    for name in ("git", "docs", "off"):
        assert main(["servers", "add", name, "--", "x"]) == 0
    assert main(["servers", "disable", "off"]) == 0
    assert main(["install", "codex", "--yes"]) == 0
    assert main(["install", "codex", "--per-server", "--yes"]) == 0
    assert "2 servers: each window runs a process of about 27 MB" in capsys.readouterr().err
    found = servers_of("codex", file)
    assert {name: entry["args"] for name, entry in found.items()} == {
        name: ["serve", "--server", name, "--client", "codex"] for name in ("git", "docs")
    }
    assert main(["install", "codex", "--yes"]) == 0
    assert list(servers_of("codex", file)) == ["portico"]


def test_all_clients_that_are_here_are_found(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "--all", "--yes"]) == 1
    assert "no client was found here" in capsys.readouterr().err
    files = {client: placed(client) for client in ("claude", "gemini")}
    assert main(["install", "--all", "--yes"]) == 0
    assert all("portico" in servers_of(*one) for one in files.items())
    assert not (home / ".cursor").exists()
    assert main(["install", "--all", "--undo"]) == 0
    assert all(file.read_text() == SAMPLES[client].text for client, file in files.items())


def test_a_client_that_allows_only_some_servers_is_a_note(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed("gemini", '{"mcp": {"allowed": ["github"]}}')
    assert main(["install", "gemini", "--yes"]) == 0
    assert "mcp.allowed does not list portico; add it there" in capsys.readouterr().err


def test_wrong_usage_is_explained(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv, said in (
        (["install", "curser"], "there is no client 'curser'; did you mean cursor?"),
        (["install"], "give one client, or --all"),
        (["install", "mcpzip"], "there is no client 'mcpzip'"),
        (["migrate", "cursor"], "Cursor has no file to import from"),
        (["install", "zed", "--undo"], "has changed nothing that can be undone"),
    ):
        assert main(argv) == 1
        assert said in capsys.readouterr().err


def test_a_change_that_the_client_makes_at_the_same_time_is_not_lost(home: Path) -> None:
    file = placed("cursor", '{"mcpServers": {}}')
    calls: list[bytes | None] = []

    def change(old: bytes | None) -> bytes:
        calls.append(old)
        if len(calls) == 1:  # the client writes after our reading, and before our writing
            file.write_text('{"mcpServers": {"new": {"command": "x"}}}')
        entry = EntryChange(("mcpServers", "portico"), {"command": "portico"})
        return changed_entries(str(file), old, lambda document: [entry])

    assert Mover("install", "cursor").change(str(file), change)
    assert len(calls) == 2
    assert list(servers_of("cursor", file)) == ["new", "portico"]
    assert main(["install", "cursor", "--undo"]) == 0
    assert file.read_text() == '{"mcpServers": {"new": {"command": "x"}}}'


def test_an_undo_keeps_what_the_client_wrote_since(home: Path) -> None:
    file = placed("claude")
    assert main(["install", "claude", "--yes"]) == 0
    file.write_text(file.read_text().replace('"numStartups": 17', '"numStartups": 18'))
    assert main(["install", "claude", "--undo"]) == 0
    assert file.read_text() == SAMPLES["claude"].text.replace(": 17", ": 18")


def test_an_undo_keeps_an_entry_that_was_edited_since(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = placed("codex")
    assert main(["install", "codex", "--yes"]) == 0
    file.write_text(f"{file.read_text()}startup_timeout_sec = 20\n")
    edited = file.read_text()
    assert main(["install", "codex", "--undo"]) == 0
    assert "mcp_servers.portico was edited since, and stays" in capsys.readouterr().out
    assert file.read_text() == edited
    assert tomllib.loads(edited)["mcp_servers"]["portico"]["startup_timeout_sec"] == 20


def test_a_file_as_windows_writes_it_stays_so(home: Path) -> None:
    file = placed("cursor")
    data = b"\xef\xbb\xbf" + SAMPLES["cursor"].text.replace("\n", "\r\n").encode()
    file.write_bytes(data)
    assert main(["install", "cursor", "--yes"]) == 0
    written = file.read_bytes()
    assert written.startswith(b"\xef\xbb\xbf{\r\n")
    assert b"\n" not in written.replace(b"\r\n", b"")
    assert "portico" in servers_of("cursor", file)
    assert main(["install", "cursor", "--undo"]) == 0
    assert file.read_bytes() == data


def test_a_link_to_a_file_elsewhere_stays_a_link(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "mcp.json"
    target.parent.mkdir()
    link = placed("cursor")
    link.unlink()
    link.symlink_to(target)
    assert main(["install", "cursor", "--yes"]) == 0  # the target does not exist yet
    assert link.is_symlink()
    assert list(servers_of("cursor", target)) == ["portico"]


def test_an_empty_file_is_filled_and_emptied_again(home: Path) -> None:
    file = placed("cursor", "")
    assert main(["install", "cursor", "--yes"]) == 0
    assert list(servers_of("cursor", file)) == ["portico"]
    assert main(["install", "cursor", "--undo"]) == 0
    assert file.read_text() == ""


def test_odd_entries_of_other_servers_are_left_alone(home: Path) -> None:
    odd = {"a": {"command": "portico", "args": None}, "b": {"command": ["portico"]}, "c": 5}
    file = placed("cursor", json.dumps({"mcpServers": odd}))
    assert main(["install", "cursor", "--yes"]) == 0
    assert list(servers_of("cursor", file)) == ["a", "b", "c", "portico"]
