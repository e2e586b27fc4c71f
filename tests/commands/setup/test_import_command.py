"""`portico import`: every client's servers in the config, once, and nothing else touched."""

import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from portico.commands.cli.main import main
from portico.core.config.read import read
from tests.commands.cli.test_call_terminal import at_terminal
from tests.commands.setup.samples import SAMPLES, SYSTEMS, on_system, placed
from tests.support.shared import ROOT


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default config of a home that is the test's own; not there yet."""
    on_system(monkeypatch, tmp_path / "home")
    monkeypatch.setitem(sys.modules, "keyring", None)
    return tmp_path / "home" / "portico" / "config" / "portico.toml"


def servers_in(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(config.read_text())["servers"]
    return found


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("client", SAMPLES)
def test_the_servers_of_each_client_are_imported_once(
    client: str,
    system: str,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_system(monkeypatch, config.parents[2], system)
    file = placed(client)
    assert main(["import", client, "--yes"]) == 0
    assert servers_in(config) == SAMPLES[client].servers
    assert file.read_text() == SAMPLES[client].text
    written = config.read_bytes()
    assert read(config, environ={"GITHUB_TOKEN": "t", "DOCS_TOKEN": "t"}).unresolved == ()
    capsys.readouterr()
    assert main(["import", client, "--yes"]) == 0
    assert config.read_bytes() == written
    assert f"{config} is unchanged" in capsys.readouterr().out


def test_a_dry_run_shows_the_changes_without_secrets_and_makes_none(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"command": "gh-mcp", "env": {"GITHUB_TOKEN": "ghp_plain", "LANG": "C"}}
    placed("cursor", json.dumps({"mcpServers": {"github": entry}}))
    assert main(["import", "cursor", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert '+env = { GITHUB_TOKEN = "********", LANG = "C" }' in shown
    assert "ghp_plain" not in shown
    assert not config.exists()


def test_nothing_is_imported_without_a_yes(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed("cursor")
    assert main(["import", "cursor"]) == 1
    shown = capsys.readouterr()
    assert "npx -y @modelcontextprotocol/server-github" in shown.out
    assert "there is no terminal to ask at; add --yes" in shown.err
    assert not config.exists()


def test_portico_never_imports_itself(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = (
        {"command": "portico", "args": ["serve", "--client", "cursor"]},
        {"command": "/opt/venv/bin/portico", "args": ["serve"]},
        {"command": r"C:\Tools\portico.exe", "args": ["serve"]},
        {"command": "uvx", "args": ["portico@1.2", "serve"]},
        {"command": "uvx", "args": ["--from", "portico[all]", "portico", "serve"]},
        {"command": "python3.12", "args": ["-m", "portico", "serve"]},
        {"type": "local", "command": ["pipx", "run", "portico", "serve"]},
    )
    others = (
        {"command": "portico", "args": ["wrap", "--", "npx", "x"]},
        {"command": "python", "args": ["serve.py"]},
    )
    entries = {f"s{number}": one for number, one in enumerate((*ours, *others))}
    placed("cursor", json.dumps({"mcpServers": entries}))
    assert main(["import", "cursor", "--yes"]) == 0
    assert list(servers_in(config)) == [f"s{len(ours)}", f"s{len(ours) + 1}"]
    assert capsys.readouterr().out.count("is Portico itself") == len(ours)


def test_an_entry_that_cannot_be_imported_is_named_and_the_others_are_imported(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """{"mcpServers": {
  "odd": {"type": "carrier-pigeon", "url": "https://x"},
  "both": {"command": "x", "url": "https://x"},
  "list": ["x"],
  "my server!": {"command": "x"},
  "my-server": {"command": "y"}
}}"""
    placed("cursor", text)
    assert main(["import", "cursor", "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "odd          not imported: line 2: carrier-pigeon is not a supported" in shown
    assert "both         not imported: line 3: has both command and url" in shown
    assert "list         not imported: line 4: must be a table" in shown
    assert servers_in(config) == {
        "my-server": {"command": "x", "title": "my server!"},
        "my-server-2": {"command": "y"},
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n "mcpServers": {\n  "a": {"command" "x"}\n }\n}', ":3:19: not valid JSON: "),
        ('{"mcpServers": {"a": {"command": "x"},\n"a": {}}}', ":2: a is set twice; fix it"),
        ('{"mcpServers": []}', ":1: mcpServers must be a table"),
        ("\x00\x01", ":1:1: not valid JSON"),
        ("[" * 100_000, ": nested too deeply"),
    ],
)
def test_a_malformed_file_is_named_with_its_line_and_left_alone(
    text: str, said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = placed("cursor", text)
    assert main(["import", "cursor", "--yes"]) == 1
    assert f"{file}{said}" in capsys.readouterr().err
    assert file.read_text() == text
    assert not config.exists()


def test_a_changed_entry_is_imported_again_and_an_edited_one_stays(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '{"mcpServers": {"a": {"command": "%s"}, "b": {"command": "b"}}}'
    placed("cursor", text % "old")
    assert main(["import", "cursor", "--yes"]) == 0
    config.write_text(config.read_text().replace('"b"', '"mine"'))
    placed("cursor", text % "new")
    capsys.readouterr()
    assert main(["import", "cursor", "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "a  new  (changed since it was imported)" in shown
    assert "b  b  (imported already)" in shown
    assert servers_in(config) == {"b": {"command": "mine"}, "a": {"command": "new"}}


def test_another_server_of_the_same_name_gets_the_name_of_its_client(config: Path) -> None:
    for client, command in (("cursor", "x"), ("windsurf", "x"), ("copilot", "y")):
        placed(client, json.dumps({"mcpServers": {"a": {"command": command}}}))
        assert main(["import", client, "--yes"]) == 0
    assert servers_in(config) == {"a": {"command": "x"}, "a-copilot": {"command": "y"}}
    before = config.read_bytes()
    assert main(["import", "copilot", "--yes"]) == 0
    assert config.read_bytes() == before


def test_an_entry_of_several_projects_runs_in_the_folder_of_each_window(
    config: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("shop", "site", "blog")]
    for folder in folders:
        folder.mkdir()
    commands = ("pg", "pg", "other")
    projects = {
        str(folder): {"mcpServers": {"db": {"command": command}}}
        for folder, command in zip(folders, commands, strict=True)
    }
    gone = {"/nowhere": {"mcpServers": {"lost": {"command": "x"}}}}
    placed("claude", json.dumps({"projects": {**projects, **gone}}))
    assert main(["import", "claude", "--yes"]) == 0
    assert servers_in(config) == {
        "db": {"command": "pg"},
        "db-blog": {"command": "other", "cwd": str(folders[2])},
    }


def test_a_file_of_a_project_is_imported_by_its_path_and_its_hints_are_not_trusted(
    config: Path, tmp_path: Path
) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    assert main(["import", str(file), "--yes"]) == 0
    assert servers_in(config) == {"a": {"command": "x", "trust_hints": False}}


def test_only_the_named_servers_are_imported(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed("cursor")
    assert main(["import", "cursor", "--yes", "--only", "dcs"]) == 1
    assert "there is no server 'dcs'; did you mean docs?" in capsys.readouterr().err
    assert main(["import", "cursor", "--yes", "--only", "docs"]) == 0
    assert list(servers_in(config)) == ["docs"]


def test_secrets_become_variables_if_asked(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {
        "gh": {"command": "x", "env": {"GITHUB_TOKEN": "ghp_plain"}},
        "web": {"url": "https://x", "headers": {"Authorization": "Bearer abc", "X-Id": "7"}},
    }
    placed("cursor", json.dumps({"mcpServers": entries}))
    assert main(["import", "cursor", "--yes", "--secrets", "keyring"]) == 1
    assert "there is no keyring" in capsys.readouterr().err
    assert main(["import", "cursor", "--yes", "--secrets", "env"]) == 0
    found = servers_in(config)
    assert found["gh"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}
    assert found["web"]["headers"] == {"Authorization": "${WEB_AUTHORIZATION}", "X-Id": "7"}
    told = capsys.readouterr().err
    assert "gh: set GITHUB_TOKEN in the environment of the gateway" in told
    assert "web: set WEB_AUTHORIZATION in the environment of the gateway" in told


def keyring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """A keyring in memory, with the few functions that are used."""
    kept: dict[tuple[str, str], str] = {}
    module = ModuleType("keyring")
    vars(module).update(
        get_keyring=lambda: SimpleNamespace(priority=5),
        get_password=lambda service, name: kept.get((service, name)),
        set_password=lambda service, name, value: kept.update({(service, name): value}),
        errors=SimpleNamespace(KeyringError=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "keyring", module)
    return kept


def test_secrets_move_to_the_keyring_only_if_asked(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keyring(monkeypatch)
    entry = {"command": "x", "env": {"GITHUB_TOKEN": "ghp_plain"}}
    placed("cursor", json.dumps({"mcpServers": {"gh": entry}}))
    assert main(["import", "cursor", "--yes"]) == 0
    assert servers_in(config)["gh"] == entry
    assert kept == {}
    assert config.stat().st_mode & 0o777 == 0o600
    assert main(["import", "cursor", "--undo"]) == 0
    assert main(["import", "cursor", "--yes", "--secrets", "keyring"]) == 0
    assert servers_in(config)["gh"]["env"] == {"GITHUB_TOKEN": "keyring:gh.GITHUB_TOKEN"}
    assert kept == {("portico", "gh.GITHUB_TOKEN"): "ghp_plain"}
    assert read(config).servers["gh"].env == {"GITHUB_TOKEN": "ghp_plain"}


@pytest.mark.slow
def test_a_value_for_which_an_editor_prompts_is_asked_for_once_and_kept(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.support.usable_keyring.UsableKeyring")
    monkeypatch.setenv("TEST_KEYRING", str(tmp_path / "keyring.json"))
    env = {"API_KEY": "${input:key}", "AGAIN": "k=${input:key}", "OTHER": "${input:other}"}
    placed("vscode", json.dumps({"servers": {"gh": {"command": "x", "env": env}}}))
    with at_terminal("import", "vscode") as terminal:
        terminal.answer("Import 1 server? [Y]es, [n]o, [c]hoose: ", "")
        terminal.answer("gh: key (Enter to skip): ", "s3cret")
        terminal.answer("gh: other (Enter to skip): ", "")
        terminal.until("gh: set OTHER, its input other")
        assert terminal.end() == 0
    assert "s3cret" not in terminal.screen + config.read_text()
    assert servers_in(config)["gh"]["env"] == {
        "API_KEY": "keyring:gh.API_KEY",
        "AGAIN": "keyring:gh.AGAIN",
        "OTHER": "${OTHER}",
    }
    stored = json.loads((tmp_path / "keyring.json").read_text())
    assert stored == {"portico gh.API_KEY": "s3cret", "portico gh.AGAIN": "k=s3cret"}


def test_an_undo_takes_back_what_was_added_and_keeps_later_edits(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.parent.mkdir(parents=True)
    config.write_text('# Mine.\n[servers.own]\ncommand = "own"\n')
    before = config.read_bytes()
    placed("cursor")
    assert main(["import", "cursor", "--yes"]) == 0
    backup = capsys.readouterr().out.rpartition("backup: ")[2].strip()
    assert Path(backup).read_bytes() == before
    assert main(["import", "cursor", "--undo"]) == 0
    assert config.read_bytes() == before

    assert main(["import", "cursor", "--yes"]) == 0
    edited = config.read_text().replace('"https://docs.example/mcp"', '"https://mine.example"')
    config.write_text(f'{edited}\n[servers.later]\ncommand = "later"\n')
    capsys.readouterr()
    assert main(["import", "cursor", "--undo"]) == 0
    shown = capsys.readouterr().out
    assert "servers.docs was edited since, and stays" in shown
    assert list(servers_in(config)) == ["own", "docs", "later"]
    assert config.read_text().startswith("# Mine.\n")
    assert main(["import", "cursor", "--undo"]) == 1
    assert "has changed nothing that can be undone" in capsys.readouterr().err


def test_a_home_that_cannot_be_written_is_an_error_and_nothing_is_half_done(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = placed("cursor")
    blocked = config.parents[2] / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("PORTICO_HOME", str(blocked / "portico"))
    assert main(["import", "cursor", "--yes"]) == 1
    assert "cannot be written: Not a directory; the file is unchanged" in capsys.readouterr().err
    monkeypatch.setenv("PORTICO_HOME", str(config.parents[1]))
    (config.parents[1] / "state").parent.mkdir(parents=True)
    (config.parents[1] / "state").write_text("")
    assert main(["import", "cursor", "--yes"]) == 1
    assert "no backup can be written: " in capsys.readouterr().err
    assert not config.exists()
    assert file.read_text() == SAMPLES["cursor"].text


def test_an_unknown_source_is_met_with_a_suggestion(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "cursr", "--yes"]) == 1
    assert "did you mean cursor?" in capsys.readouterr().err
    assert main(["import", "zed", "--yes"]) == 1
    assert "Zed has no file to import from: " in capsys.readouterr().err
    assert main(["import", "./none.json", "--yes"]) == 1
    assert "none.json: no such file" in capsys.readouterr().err


def test_the_config_is_not_imported_into_itself(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.parent.mkdir(parents=True)
    config.write_text('[servers.a]\ncommand = "x"\n')
    assert main(["import", str(config), "--yes"]) == 1
    assert "is the config itself" in capsys.readouterr().err


def test_the_aggregators_settings_are_converted(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed(
        "mcpzip",
        """{"mcpServers": {"a": {"command": "x"}, "b": {"type": "http", "url": "https://x"}},
        "gemini_api_key": "AIza", "search": {"model": "gemini-2.0-flash", "default_limit": 8},
        "idle_timeout_minutes": 10, "call_timeout_seconds": 60}""",
    )
    for _ in range(2):
        assert main(["import", "mcpzip", "--yes"]) == 0
    assert tomllib.loads(config.read_text()) == {
        "servers": {
            "a": {"command": "x", "timeouts": {"idle": 600, "call": 60}},
            "b": {
                "url": "https://x",
                "type": "http",
                "timeouts": {"idle": 600, "call": 60},
            },
        },
        "search": {"default_limit": 8},
    }
    assert read(config).search.default_limit == 8
    told = capsys.readouterr().err
    assert "set GEMINI_API_KEY, and add [search.rerank]" in told
    assert "AIza" not in told


def test_the_orchestrators_agents_are_converted_once(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.parent.mkdir(parents=True)
    config.write_text('# Mine.\n[gateway]\nexpose = "all"\n')
    placed(
        "orchestrator",
        """[server]
max_concurrent_tasks = 3
[main_agent]
name = "gemini"
[[agents]]
id = "coder"
command = "qwencode"
capabilities = ["code"]
[[routing.rules]]
task_type = "code"
preferred_agents = ["coder"]
[logging]
output = "/var/log/x.log"
""",
    )
    assert main(["import", "orchestrator", "--yes"]) == 0
    written = config.read_text()
    assert written.startswith('# Mine.\n[gateway]\nexpose = "all"\n')
    found = read(config)
    assert found.gateway.log == "/var/log/x.log"
    assert found.agents is not None
    assert list(found.agents.entries) == ["coder"]
    assert "not imported: main_agent: Portico has no main agent" in capsys.readouterr().err
    assert main(["import", "orchestrator", "--yes"]) == 0
    assert config.read_text() == written
    assert main(["import", "orchestrator", "--undo"]) == 0
    assert config.read_text() == '# Mine.\n[gateway]\nexpose = "all"\n'
