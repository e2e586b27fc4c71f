"""Other clients' files, as they are: each one's keys mean what they mean there."""

from pathlib import Path

import pytest

from portico.core.config.auth_settings import AuthSettings
from portico.core.config.read import read
from portico.core.config.schema import Config, ServerEntry, ToolFilter
from portico.core.documents.names import valid_names
from portico.core.documents.problems import ConfigError


def config(tmp_path: Path, text: str, name: str = "mcp.json", **environ: str) -> Config:
    path = tmp_path / name
    path.write_text(text)
    return read(path, environ=environ)


def one(tmp_path: Path, entry: str, **environ: str) -> ServerEntry:
    """The only server of a client's file."""
    (found,) = config(tmp_path, f'{{"mcpServers": {{"a": {entry}}}}}', **environ).servers.values()
    return found


def test_comments_commas_and_a_byte_order_mark_are_no_hindrance(tmp_path: Path) -> None:
    text = """\ufeff// Mine, as a "comment" may say.
{
  /* all of
     them */
  "mcpServers": {
    "a": { "command": "npx", "args": ["//no comment", "/* nor this */", ",]",], }, // ,}
    "b": { "url": "https://b.example/mcp" /* , */, },
  },
}
"""
    found = config(tmp_path, text).servers
    assert found["a"].args == ("//no comment", "/* nor this */", ",]")
    assert found["b"].url == "https://b.example/mcp"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('{"type": "local", "command": ["npx", "-y", "x"]}', ("npx", ("-y", "x"), "", "stdio")),
        ('{"command": "npx", "args": null}', ("npx", (), "", "")),
        ('{"type": "streamable-http", "url": "https://x"}', ("", (), "https://x", "http")),
        ('{"type": "streamableHttp", "url": "https://x"}', ("", (), "https://x", "http")),
        ('{"type": "remote", "url": "https://x"}', ("", (), "https://x", "")),
        ('{"serverUrl": "https://x"}', ("", (), "https://x", "")),
        ('{"httpUrl": "https://x"}', ("", (), "https://x", "http")),
        ('{"type": "sse", "url": "https://x"}', ("", (), "https://x", "sse")),
        ('{"transport": "sse", "url": "https://x"}', ("", (), "https://x", "sse")),
        ('{"command": {"path": "npx", "args": ["-y"]}}', ("npx", ("-y",), "", "")),
    ],
)
def test_each_way_to_say_where_a_server_is(
    entry: str, said: tuple[object, ...], tmp_path: Path
) -> None:
    server = one(tmp_path, entry)
    assert (server.command, server.args, server.url, server.type) == said


def test_switches_filters_variables_and_times_of_clients(tmp_path: Path) -> None:
    server = one(
        tmp_path,
        """{"command": "x", "disabled": true, "disabledTools": ["rm"], "includeTools": ["ls"],
            "environment": {"PORT": 80, "ON": true, "NO": null}, "timeout": 5000,
            "autoApprove": ["x"], "trust": true}""",
    )
    assert not server.enabled
    assert server.tools == ToolFilter(allow=("ls",), deny=("rm",))
    assert server.env == {"PORT": "80", "ON": "true"}
    assert server.timeouts.call == 5.0
    assert one(tmp_path, '{"command": "x", "timeout": 60}').timeouts.call == 60.0
    assert one(tmp_path, '{"command": "x", "tools": ["*"]}').tools.allows("x")
    assert not one(tmp_path, '{"command": "x", "enabled": false}').enabled


def test_a_program_may_be_a_table_with_its_variables(tmp_path: Path) -> None:
    program = '{"path": "x", "args": null, "env": {"A": 1}}'
    server = one(tmp_path, f'{{"command": {program}, "env": {{"B": "2"}}, "settings": {{}}}}')
    assert (server.command, server.env) == ("x", {"A": "1", "B": "2"})
    with pytest.raises(ConfigError, match="has no path; set path to the program"):
        one(tmp_path, '{"command": {"args": []}}')


def test_a_login_in_another_clients_words_is_understood(tmp_path: Path) -> None:
    assert one(tmp_path, '{"url": "https://x", "auth": "oauth"}').auth == AuthSettings()
    table = '{"CLIENT_ID": "me", "CLIENT_SECRET": "s", "scopes": ["read"], "shape": 1}'
    text = f'{{"mcpServers": {{"a": {{"url": "https://x", "auth": {table}}}}}}}'
    found = config(tmp_path, text)
    expected = AuthSettings(client_id="me", client_secret="s", scopes=("read",))
    assert found.servers["a"].auth == expected
    assert found.warnings == (
        f"{tmp_path}/mcp.json:1: mcpServers.a.auth.shape: unknown key, ignored",
    )


def test_home_is_called_as_editors_call_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    assert one(tmp_path, '{"command": "${userHome}/bin/x"}').command == "/home/ana/bin/x"


def test_keys_that_nobody_here_knows_are_warnings(tmp_path: Path) -> None:
    text = '{"theme": 1, "mcpServers": {"a": {"command": "x",\n"oauth": {}, "gallery": true}}}'
    of_entry = f"{tmp_path}/mcp.json:2: mcpServers.a.oauth: unknown key, ignored"
    at_top = f"{tmp_path}/mcp.json:1: theme: unknown key, ignored"
    assert config(tmp_path, text).warnings == (at_top, of_entry)


def test_the_other_settings_of_a_client_are_no_warnings(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    text = '{"theme": 1, "mcpServers": {"a": {"command": "x"}}}'
    assert config(tmp_path, text, ".gemini/settings.json").warnings == ()


def test_settings_of_the_aggregator_are_not_dropped_in_silence(tmp_path: Path) -> None:
    text = """{"gemini_api_key": "AIza", "idle_timeout_minutes": 5, "call_timeout_seconds": 60,
    "mcpServers": {"a": {"command": "x"}}}"""
    told = config(tmp_path, text, "config.json").warnings
    assert [one.split(": ")[1] for one in told] == [
        "gemini_api_key",
        "idle_timeout_minutes",
        "call_timeout_seconds",
    ]
    assert all("`portico import FILE` converts it" in one for one in told)
    assert not any("AIza" in one for one in told)


def test_servers_of_a_project_run_in_its_folder(tmp_path: Path) -> None:
    text = """{"mcpServers": {"a": {"command": "x"}}, "projects": {
    "/projects/shop": {"history": [], "mcpServers": {
      "db": {"command": "pg"}, "a": {"command": "y", "cwd": "/elsewhere"},
      "web": {"type": "http", "url": "https://x"}}},
    "/projects/empty": {"mcpServers": {}}}}"""
    found = config(tmp_path, text, ".claude.json").servers
    assert [(one.command, one.cwd) for one in found.values()] == [
        ("x", None),
        ("pg", "/projects/shop"),
        ("y", "/elsewhere"),
        ("", None),
    ]
    assert list(found)[:2] == ["a", "db"]
    second = list(found.values())[2]
    assert second.name.startswith("a-")
    assert second.title == "a"


def test_a_wrong_value_is_named_by_the_clients_own_key(tmp_path: Path) -> None:
    for entry, said in (
        ('{"serverUrl": 5}', "mcpServers.a.serverUrl: must be a string"),
        ('{"command": []}', "mcpServers.a.command: is empty"),
        ('{"command": ["x", 5]}', r"mcpServers.a.command\[1\]: must be a string"),
        ('{"type": "http", "command": "x"}', "mcpServers.a.type: http needs a url"),
        (
            '{"type": "carrier", "command": "x"}',
            "mcpServers.a.type: carrier is not a supported transport",
        ),
        ('{"disabled": "no", "command": "x"}', "mcpServers.a.disabled: must be true or false"),
    ):
        with pytest.raises(ConfigError, match=said):
            one(tmp_path, entry)
    assert "mcpServers.a.serverUrl: X is not set" in one(tmp_path, '{"serverUrl": "${X}"}').problem


def test_what_an_editor_would_ask_for_has_to_be_set_otherwise(tmp_path: Path) -> None:
    text = """{"inputs": [{"id": "key", "type": "promptString"}],
 "servers": {"a": {"type": "stdio", "command": "x", "env": {"KEY": "%s"}}}}"""
    for value, said in (
        ("${input:key}", "a.env.KEY: ${input:key} cannot be prompted for here; "),
        ("${workspaceFolder}", "workspaceFolder} is only available in an editor"),
    ):
        assert said in config(tmp_path, text % value).servers["a"].problem
    (warning,) = config(tmp_path, text % "${env:KEY}", KEY="k").warnings
    assert ":1: inputs: ${input:...} cannot be prompted for here; " in warning


def test_a_lone_dollar_is_no_variable_here(tmp_path: Path) -> None:
    found = config(tmp_path, '{"mcpServers": {"a": {"command": "x", "env": {"A": "$HOME"}}}}')
    assert found.servers["a"].env == {"A": "$HOME"}
    assert found.warnings[0].endswith("a.env.A: $NAME is not expanded; write ${NAME}")


def test_names_are_made_to_fit_and_kept_as_titles(tmp_path: Path) -> None:
    entry = '{"command": "x"}'
    names = ("My Server", "my/server", "my server", "io.github.user/a__b_", "плохо", "ok_1")
    text = ", ".join(f'"{name}": {entry}' for name in names)
    found = config(tmp_path, f'{{"mcpServers": {{{text}}}}}').servers
    valid = list(found)
    assert valid[:2] == ["My-Server", "my-server"]
    assert valid[2].startswith("my-server-")
    assert valid[3] == "io-github-user-a_b"
    assert valid[4].startswith("server-")
    assert [server.title for server in found.values()] == [*names[:5], ""]
    assert valid == list(valid_names(names))


def test_the_file_of_a_client_that_writes_toml(tmp_path: Path) -> None:
    text = """
model = "o9"
[profiles.fast]
model = "o9-mini"
[mcp_servers.docs]
command = "docs-server"
startup_timeout_sec = 20
tool_timeout_sec = 40
enabled_tools = ["search"]
[mcp_servers."remote one"]
url = "https://r.example/mcp"
bearer_token_env_var = "R_TOKEN"
http_headers = { X-A = "1" }
env_http_headers = { X-B = "B_VALUE" }
"""
    found = config(tmp_path, text, "config.toml", R_TOKEN="t", B_VALUE="b")
    docs, remote = found.servers["docs"], found.servers["remote-one"]
    assert (docs.timeouts.init, docs.timeouts.call) == (20.0, 40.0)
    assert docs.tools.allow == ("search",)
    assert remote.headers == {"Authorization": "Bearer t", "X-A": "1", "X-B": "b"}
    assert (found.warnings, found.profiles) == ((), {})
    assert found.variables == {"R_TOKEN", "B_VALUE"}


@pytest.mark.parametrize(
    "text",
    [
        '{"servers": {"a": {"command": "x"}}}',
        '{"mcp": {"servers": {"a": {"command": "x"}}}}',
        '{"mcp": {"a": {"type": "local", "command": ["x"]}}}',
        '{"context_servers": {"a": {"command": "x", "source": "custom"}}}',
        '{"mcpServers": {"a": {"command": "x"}}, "mcp": {"allowed": ["a"]}}',
    ],
)
def test_each_clients_own_table_is_found(text: str, tmp_path: Path) -> None:
    found = config(tmp_path, text, "settings")
    assert [server.command for server in found.servers.values()] == ["x"]
    assert found.warnings == ()


def test_what_a_client_leaves_out_is_left_out(tmp_path: Path) -> None:
    servers = '"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}'
    for about, enabled in (
        ('"allowed": ["a"]', [True, False]),
        ('"excluded": ["a"]', [False, True]),
        ('"allowed": [], "excluded": 5', [True, True]),
    ):
        found = config(tmp_path, f'{{{servers}, "mcp": {{{about}}}}}').servers
        assert [server.enabled for server in found.values()] == enabled
    assert config(tmp_path, '{"mcp": {"allowed": ["a"]}}').servers == {}


def test_groups_in_a_clients_file_may_use_its_own_names(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a b": {"command": "x"}}, "groups": {"g": {"servers": ["a b"]}}}'
    assert config(tmp_path, text).groups["g"].servers == ("a-b",)


@pytest.mark.parametrize(
    "key", ["alwaysAllow", "autoApprove", "default_tools_approval_mode", "trust"]
)
def test_a_permission_that_a_client_keeps_is_reported(tmp_path: Path, key: str) -> None:
    for value, count in (('["read"]', 1), ("true", 1), ('"approve"', 1), ("[]", 0), ("false", 0)):
        text = f'{{"mcpServers": {{"a": {{"command": "x", "{key}": {value}}}}}}}'
        found = config(tmp_path, text).warnings
        assert len(found) == count
        assert all(f"mcpServers.a.{key}: has no effect here" in one for one in found)


def test_a_server_is_taken_at_its_word_only_if_a_person_added_it(tmp_path: Path) -> None:
    assert not one(tmp_path, '{"command": "x"}').trust_hints
    assert one(tmp_path, '{"command": "x", "trust_hints": true}').trust_hints
    own = config(tmp_path, '[servers.a]\ncommand = "x"\n[mcp_servers.b]\ncommand = "x"', "p.toml")
    assert [entry.trust_hints for entry in own.servers.values()] == [True, False]
    unsure = config(tmp_path, '[servers.a]\ncommand = "x"\ntrust_hints = false', "p.toml")
    assert not unsure.servers["a"].trust_hints
