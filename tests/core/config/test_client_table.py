"""The table of clients: where each keeps its servers, on every system."""

from pathlib import Path

import pytest

from portico.core.config.client_table import CLIENTS, SOURCES, System, format_of, this_system

PATHS = {
    "claude": (".claude.json", ".claude.json", ".claude.json"),
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        "Library/Application Support/Claude/claude_desktop_config.json",
        "AppData/Roaming/Claude/claude_desktop_config.json",
    ),
    "cursor": (".cursor/mcp.json",) * 3,
    "vscode": (
        ".config/Code/User/mcp.json",
        "Library/Application Support/Code/User/mcp.json",
        "AppData/Roaming/Code/User/mcp.json",
    ),
    "windsurf": (".codeium/windsurf/mcp_config.json",) * 3,
    "codex": (".codex/config.toml",) * 3,
    "gemini": (".gemini/settings.json",) * 3,
    "qwen": (".qwen/settings.json",) * 3,
    "opencode": (".config/opencode/opencode.json",) * 3,
    "copilot": (".copilot/mcp-config.json",) * 3,
    "zed": (
        ".config/zed/settings.json",
        ".config/zed/settings.json",
        "AppData/Roaming/Zed/settings.json",
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_has_its_file_on_every_system(client: str) -> None:
    names = ("linux", "macos", "windows")
    found = [CLIENTS[client].file(System(name, "/home/ana")) for name in names]
    assert found == [f"/home/ana/{path}" for path in PATHS[client]]


@pytest.mark.parametrize(
    ("client", "variable", "path"),
    [
        ("codex", "CODEX_HOME", "/x/config.toml"),
        ("claude", "CLAUDE_CONFIG_DIR", "/x/.claude.json"),
        ("qwen", "QWEN_HOME", "/x/settings.json"),
        ("copilot", "COPILOT_HOME", "/x/mcp-config.json"),
        ("vscode", "XDG_CONFIG_HOME", "/x/Code/User/mcp.json"),
    ],
)
def test_a_variable_moves_a_clients_file(client: str, variable: str, path: str) -> None:
    assert CLIENTS[client].file(System("linux", "/home/ana", {variable: "/x"})) == path


def test_windows_says_where_settings_are() -> None:
    system = System("windows", "/home/ana", {"APPDATA": "/roaming"})
    assert CLIENTS["zed"].file(system) == "/roaming/Zed/settings.json"


def test_the_file_that_exists_is_preferred_to_the_usual_one(tmp_path: Path) -> None:
    row, system = CLIENTS["opencode"], System("linux", str(tmp_path))
    assert not row.is_there(system)
    folder = tmp_path / ".config" / "opencode"
    folder.mkdir(parents=True)
    assert row.is_there(system)
    assert row.sources(system) == []
    (folder / "opencode.jsonc").write_text("{}")
    assert row.sources(system) == [row.file(system)] == [str(folder / "opencode.jsonc")]


def test_a_home_alone_is_no_sign_of_a_client(tmp_path: Path) -> None:
    assert not CLIENTS["claude"].is_there(System("linux", str(tmp_path)))


@pytest.mark.parametrize(
    ("path", "client"),
    [
        ("/home/ana/.claude.json", "claude"),
        ("/projects/shop/.mcp.json", "claude"),
        ("/projects/shop/.gemini/settings.json", "gemini"),
        ("/projects/shop/.zed/settings.json", "zed"),
        ("/home/ana/.config/Code/User/settings.json", "vscode"),
        ("/projects/shop/opencode.jsonc", "opencode"),
        ("/home/ana/.config/compressed-mcp-proxy/config.json", "mcpzip"),
        ("/projects/mcp.json", ""),
        ("/projects/settings.json", ""),
    ],
)
def test_a_path_says_whose_file_it_is(path: str, client: str) -> None:
    row = format_of(path)
    assert (row.name if row else "") == client


def test_this_system_is_the_one_it_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    assert this_system().home == "/home/ana"
    assert [row.name for row in SOURCES.values() if row.write is None] == [
        "mcpzip",
        "orchestrator",
    ]
