"""A config file read: all that it says, or all that is wrong with it, line by line."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.core.config.auth_settings import AuthSettings
from portico.core.config.paths import config_file, state_folder
from portico.core.config.read import read
from portico.core.config.schema import LIMITS, Config, Gateway, Search, Timeouts, ToolFilter
from portico.core.config.values import DELETED
from portico.core.documents.problems import ConfigError, Report
from portico.edge.transport.http_limits import HttpLimits

WHOLE = """
[gateway]
expose = "search"
pinned = ["github__search"]
name_limit = 48
http = "127.0.0.1:8080"
auth = "none"
log = "calls.log"
drain = 5
limits = { sessions = 10, body_s = 2.5 }

[search]
default_limit = 7
vectors = true
model = "models/small"
rerank = { provider = "gemini", model = "small" }

[servers.github]
command = "npx"
args = ["-y", "server-github"]
env = { TOKEN = "${TOKEN}" }
cwd = "work"
title = "GitHub"
description = "Code"
tags = ["code"]
tools = { allow = ["get_*"], deny = ["get_secret"] }
timeouts = { call = 10, idle = 0 }
instances = 2
sharing = "per-client"
era = "legacy"
max_in_flight = 8

[servers.linear]
url = "https://${HOST:-mcp.linear.app}/mcp"
headers = { Authorization = "Bearer ${env:TOKEN}" }
type = "http"
max_connections = 9
auth = { client_id = "me", scopes = ["read"] }

[servers.off]
command = "${NOWHERE}"
enabled = false

[groups.work]
servers = ["linear", "github"]

[profiles.dev]
components = ["calc"]

[[agents]]
id = "qwen"
preset = "qwen"

[[routing.rules]]
task_type = "code-generation"
keywords = ["implement"]
preferred_agents = ["qwen"]
"""


def config(tmp_path: Path, text: str, name: str = "portico.toml", **environ: str) -> Config:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return read(path, environ=environ)


@pytest.fixture
def digits() -> Iterator[None]:
    """Numbers as long as Python reads them by default, whatever other tests have set."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(sys.int_info.default_max_str_digits)
    yield
    sys.set_int_max_str_digits(before)


def problems(tmp_path: Path, text: str, name: str = "portico.toml") -> list[str]:
    """What is said of a file, without the folder that it is in."""
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, text, name)
    return [line.removeprefix(f"{tmp_path}{os.sep}") for line in caught.value.problems]


def test_a_whole_file(tmp_path: Path) -> None:
    found = config(tmp_path, WHOLE, TOKEN="s3cret")
    assert found.path == str(tmp_path / "portico.toml")
    assert found.gateway == Gateway(
        expose="search",
        pinned=("github__search",),
        name_limit=48,
        http="127.0.0.1:8080",
        auth="none",
        log=str(tmp_path / "calls.log"),
        drain=5.0,
        limits={"sessions": 10, "body_s": 2.5},
    )
    assert found.search.rerank is not None
    assert found.search.rerank.key_env == "GEMINI_API_KEY"
    assert found.search.model == str(tmp_path / "models/small")
    assert list(found.servers) == ["github", "linear", "off"]
    github, linear, off = found.servers.values()
    assert (github.command, github.args) == ("npx", ("-y", "server-github"))
    assert github.env == {"TOKEN": "s3cret"}
    assert (github.cwd, github.folder) == ("work", "auto")
    assert github.timeouts == Timeouts(call=10.0, idle=0.0)
    assert (github.instances, github.sharing, github.era) == (2, "per-client", "legacy")
    assert (linear.max_connections, github.max_connections) == (9, 128)
    assert linear.url == "https://mcp.linear.app/mcp"
    assert linear.headers == {"Authorization": "Bearer s3cret"}
    assert linear.auth == AuthSettings(client_id="me", scopes=("read",))
    assert not off.enabled
    assert found.groups["work"].servers == ("linear", "github")
    assert found.agents is not None
    assert (list(found.agents.entries), len(found.agents.rules)) == (["qwen"], 1)
    assert found.profiles["dev"].members == ("calc",)
    assert found.warnings == ()


def test_nothing_in_it_is_a_config_too(tmp_path: Path) -> None:
    for name, text in (("a.toml", ""), ("b.toml", "[servers]\n"), ("c.json", "{}"), ("d", " {}")):
        found = config(tmp_path, text, name)
        assert (found.servers, found.gateway, found.search) == ({}, Gateway(), Search())


def test_secrets_show_in_no_repr(tmp_path: Path) -> None:
    from rich.pretty import pretty_repr

    found = config(tmp_path, WHOLE, TOKEN="s3cret")
    assert "s3cret" not in repr(found) + repr(dict(found.servers)) + str(found.servers["linear"])
    assert "s3cret" not in pretty_repr(found) + pretty_repr(dict(found.servers))


def test_every_problem_is_named_with_its_line_its_key_and_what_to_do(tmp_path: Path) -> None:
    text = """\
surprise = 1
[gateway]
expose = "serach"
name_limit = 3
http = "localhost"
pinned = ["search"]
limits = { session = 1 }
[search]
default_limit = 51
rerank = { model = "x", url = "x.example" }
[servers.github]
comand = "npx"
[servers.both]
command = "x"
url = "https://x"
[servers.neither]
title = "x"
[servers.bare]
url = "example.com/mcp?key=s3cret"
[servers.typed]
command = 5
args = ["a", 5]
env = { A = true }
timeouts = { call = -1, idle = nan }
instances = 0
enabled = "yes"
[servers."my server"]
command = "x"
[servers.unset]
command = "x"
env = { TOKEN = "${TOKEN}" }
[groups.work]
servers = ["unsett"]
"""
    assert problems(tmp_path, text) == [
        "portico.toml:1: surprise: unknown key; choose from gateway, search, tasks, auth, servers, "
        "components, groups, clients, mcp_servers, profiles, registries, trust, agents_defaults, "
        "agents, routing",
        "portico.toml:3: gateway.expose: serach is not one of auto, search, all; "
        "did you mean search?",
        "portico.toml:4: gateway.name_limit: must be 32 to 1024",
        'portico.toml:5: gateway.http: is not an address; use PORT, "HOST:PORT" or "[IPV6]:PORT"',
        "portico.toml:6: gateway.pinned[0]: search is not the name of a tool; write server__tool",
        "portico.toml:7: gateway.limits.session: unknown key; did you mean sessions?",
        "portico.toml:9: search.default_limit: must be 1 to 50",
        "portico.toml:10: search.rerank.provider: is missing; add provider",
        "portico.toml:10: search.rerank.url: the URL has no scheme; start it with https://",
        "portico.toml:12: servers.github.comand: unknown key; did you mean command?",
        "portico.toml:13: servers.both: has both command and url; remove one of them",
        "portico.toml:16: servers.neither: has neither command nor url; add one of them",
        "portico.toml:19: servers.bare.url: the URL has no scheme; start it with https://",
        "portico.toml:21: servers.typed.command: must be a string, not a number; put it in quotes",
        "portico.toml:22: servers.typed.args[1]: must be a string, not a number; put it in quotes",
        "portico.toml:23: servers.typed.env.A: must be a string, not true or false; "
        "put it in quotes",
        "portico.toml:24: servers.typed.timeouts.call: must be more than 0 and at most 1e9",
        "portico.toml:24: servers.typed.timeouts.idle: must be at least 0 and at most 1e9",
        "portico.toml:25: servers.typed.instances: must be 1 to 1000",
        "portico.toml:26: servers.typed.enabled: must be true or false, not a string",
        "portico.toml: and 3 more",
    ]
    rest = text.partition("[servers.typed]")[0].count("\n")
    tail = "\n" * rest + '[servers."my server"]\n' + text.partition('[servers."my server"]\n')[2]
    assert [line.partition(": ")[2] for line in problems(tmp_path, tail)] == [
        "servers.'my server': is not a valid server name; write my-server",
        "servers.unset.env.TOKEN: TOKEN is not set; set it, or write ${TOKEN:-default}",
        "groups.work.servers[0]: there is no server unsett; did you mean unset?",
    ]


def test_a_value_that_is_refused_is_never_shown(tmp_path: Path) -> None:
    text = """
[servers.a]
command = ["s3cret"]
env = ["s3cret"]
headers = { "X" = "s3cret\\n", "b d" = "s3cret" }
url = "s3cret"
args = "s3cret"
cwd = "\\u0000s3cret"
"""
    assert "s3cret" not in "\n".join(problems(tmp_path, text))
    # Without the other problems, the header's is looked at too.
    text = '[servers.a]\nurl = "https://x"\nheaders = { X = "s3cret\\n", "b d" = "s3cret" }\n'
    said = problems(tmp_path, text)
    assert len(said) == 2
    assert "s3cret" not in "\n".join(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[servers.a\n", "portico.toml:1:11: not valid TOML: expected ']'"),
        ("a = 1\n[b]\nc = [1,\n", "portico.toml:4: not valid TOML: "),
        ("[servers.a]\n[servers.a]\n", "portico.toml:2: servers.a: is set twice; rename"),
        ("[servers.a]\ncommand = 1\ncommand = 2\n", "portico.toml:3: command: is set twice"),
        ("x = " + "9" * 5000, "portico.toml: contains an invalid number"),
        ("x = " + "[" * 3000, "portico.toml: nested too deeply"),
        ("servers = 1\n", "portico.toml:1: servers: must be a table, not a number"),
        ("servers.a = 1\n", "portico.toml:1: servers.a: must be a table, not a number"),
        (
            '[servers.""]\ncommand = "x"\n',
            "portico.toml:1: servers.'': the server has no name; add one",
        ),
        ("groups = 1\n", "portico.toml:1: groups: must be a table"),
        ("[groups.a]\nserver = []\n", "portico.toml:2: groups.a.server: unknown key; did you mean"),
        (
            '[servers."a\\u200bb"]\ncommand = "x"\n',
            "portico.toml:1: servers.'a\\u200bb': is not a valid server name; write a-b",
        ),
    ],
)
@pytest.mark.usefixtures("digits")
def test_a_broken_file_is_explained(text: str, said: str, tmp_path: Path) -> None:
    assert problems(tmp_path, text)[0].startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"mcpServers": {\n "a": }}', "x.json:2:7: not valid JSON: expecting value"),
        ("", "x.json:1:1: not valid JSON"),
        ("[]", "x.json:1: must contain an object with mcpServers"),
        ("[" * 100_000, "x.json: nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "x.json: contains a number with too many digits"),
        ('{"mcpServers": []}', "x.json:1: mcpServers: must be a table, not a list"),
        ('{"mcpServer": {}}', "x.json:1: mcpServer: unknown key; did you mean mcpServers?"),
        (
            '{"mcpServers": {"": {"command": "x"}}}',
            "x.json:1: mcpServers.'': the server has no name",
        ),
        (
            '{"mcpServers": {"a": {"command": "\\ud800"}}}',
            "x.json:1: mcpServers.a.command: contains an unpaired surrogate",
        ),
        (
            '{"mcpServers": {"a": {"command": "x"},\n// "a": 1\n"a": {"command": "y"}}}',
            "x.json:3: mcpServers.a: is set twice; rename or remove one of them",
        ),
    ],
)
@pytest.mark.usefixtures("digits")
def test_broken_json_is_explained(text: str, said: str, tmp_path: Path) -> None:
    assert problems(tmp_path, text, "x.json")[0].startswith(said)


def test_what_is_no_readable_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"[servers]\n# caf\xe9\n")
    (tmp_path / "huge").write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    os.mkfifo(tmp_path / "pipe")
    for name, said in (
        ("nowhere", "nowhere: no such file"),
        ("", "is a folder"),
        ("latin", "latin:2: not UTF-8 text"),
        ("huge", "huge: larger than 4 MB"),
        ("pipe", "pipe: not a regular file"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=said):
            read(tmp_path / name)


def test_thousands_of_servers_are_read_soon(tmp_path: Path) -> None:
    entry = '[servers.s{0}]\ncommand = "x"\nargs = ["{1}"]\n'
    text = "".join(entry.format(number, "y" * 400) for number in range(2000))
    assert len(config(tmp_path, text).servers) == 2000
    assert problems(tmp_path, text + "[servers.z]\n") == [
        "portico.toml:6001: servers.z: has neither command nor url; add one of them"
    ]


def test_only_the_servers_that_are_asked_for_need_their_variables(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    path.write_text(
        '[servers.a]\ncommand = "${A}"\n[servers.b]\ncommand = "${B}"\nenabled = false\n'
    )
    assert read(path, environ={}, only=()).servers["a"].command == "${A}"
    assert read(path, environ={"B": "b"}, only={"b"}).servers["b"].command == "b"
    found = read(path, environ={"A": "a"}, only={"a", "b"})
    assert found.servers["b"].problem == (
        "servers.b.command: B is not set; set it, or write ${B:-default}"
    )
    assert found.servers["a"].problem == ""


@pytest.mark.parametrize(
    ("value", "environ", "said"),
    [
        ("${KEY}", {}, "KEY is not set; set it, or write ${KEY:-default}"),
        ("${KEY}", {"KEY": "a\nb"}, "its value contains characters that headers cannot carry"),
        ("Bearer ${KEY}", {"KEY": "a\0b"}, "its value contains a NUL character"),
        ("file:nowhere", {}, "cannot be read"),
        ("${file:nowhere}", {}, "cannot be read"),
    ],
)
def test_a_value_that_cannot_be_had_breaks_only_its_own_server(
    tmp_path: Path, value: str, environ: dict[str, str], said: str
) -> None:
    path = tmp_path / "portico.toml"
    entry = f'[servers.b]\nurl = "https://x"\nheaders = {{ A = "{value}" }}\n'
    path.write_text(f'[servers.a]\ncommand = "x"\n{entry}')
    found = read(path, environ=environ)
    assert found.servers["a"].problem == ""
    assert said in found.servers["b"].problem
    (line,) = [one for one in found.unresolved if said in one]
    assert line.startswith(f"{path}:5: servers.b.headers.A: ")


@pytest.mark.parametrize("value", ["${KEY", "${1}", "${${KEY}}"])
def test_a_reference_that_is_none_is_a_mistake_of_the_file(tmp_path: Path, value: str) -> None:
    path = tmp_path / "portico.toml"
    path.write_text(f'[servers.a]\ncommand = "x"\nenv = {{ A = "{value}" }}\n')
    with pytest.raises(ConfigError, match=r"servers\.a\.env\.A"):
        read(path, environ={})


def test_a_filter_allows_by_pattern_and_denial_wins() -> None:
    assert ToolFilter().allows("anything")
    some = ToolFilter(allow=("get_*", "LIST"), deny=("get_secret*",))
    assert [some.allows(name) for name in ("get_x", "LIST", "list", "get_secrets")] == [
        True,
        True,
        False,
        False,
    ]
    assert not ToolFilter(deny=("*",)).allows("x")


def test_the_limits_are_those_of_the_http_edge() -> None:
    assert set(LIMITS) == set(HttpLimits.__struct_fields__)
    for name, reader in LIMITS.items():
        default = getattr(HttpLimits(), name)
        assert reader(Report(), (), default) == default


def test_the_default_file_is_in_the_config_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    assert config_file() == str(tmp_path / "config" / "portico.toml")
    monkeypatch.delenv("PORTICO_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_file() == str(tmp_path / "portico" / "portico.toml")


def test_a_variable_names_the_default_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTICO_CONFIG", str(tmp_path / "mine.toml"))
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    assert config_file() == str(tmp_path / "mine.toml")
    assert state_folder() == str(tmp_path / "home" / "state")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORTICO_CONFIG", "here.toml")
    assert config_file() == str(tmp_path / "here.toml")


@pytest.mark.parametrize(
    ("keys", "cwd", "placed"),
    [
        ('command = "x"', None, "/window"),
        ('command = "./x"\ncwd = "."', ".", "/window"),
        ('command = "x"\ncwd = "a/../b"', "b", "/window/b"),
        ('command = "x"\ncwd = "${PLACE}"', "there", "/window/there"),
        ('command = "x"\nargs = ["."]\ncwd = "/fixed/"', "/fixed", "/fixed"),
        ('command = "x"\ncwd = "~/fixed"', "HOME/fixed", "HOME/fixed"),
        ('command = "x"\nargs = ["."]\nfolder = "any"', "CONFIG", "CONFIG"),
        ('command = "x"\ncwd = "sub"\nfolder = "any"', "CONFIG/sub", "CONFIG/sub"),
        ('url = "http://127.0.0.1/mcp"\nfolder = "any"', None, None),
        ('url = "http://127.0.0.1/mcp"', None, None),
    ],
)
def test_a_server_runs_in_the_folder_of_a_window_unless_the_config_gives_one(
    keys: str, cwd: str | None, placed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    def full(path: str | None) -> str | None:
        return path and path.replace("HOME", "/home/me").replace("CONFIG", str(tmp_path))

    path = tmp_path / "portico.toml"
    path.write_text(f"[servers.a]\n{keys}\n")
    entry = read(str(path), environ={"PLACE": "there"}).servers["a"]
    assert entry.cwd == full(cwd)
    assert entry.placed_in("/window").cwd == full(placed)
    assert entry.placed_in("").cwd == entry.cwd
    assert entry.is_per_folder == (placed is not None and placed.startswith("/window"))


def test_a_folder_is_for_any_window_or_decided_by_portico(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    path.write_text('[servers.a]\ncommand = "x"\nfolder = "/tmp"\n')
    with pytest.raises(ConfigError, match="folder"):
        read(str(path), environ={})


def test_a_client_has_its_own_exposure(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    path.write_text('[clients.codex]\nexpose = "all"\n[clients.zed]\n')
    found = read(path).clients
    assert (found["codex"].expose, found["zed"].expose) == ("all", None)
    path.write_text('[clients."a b"]\nexpose = "some"\nmodel = 1\n')
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert len(caught.value.problems) == 3
    assert "is not a valid client name; write a-b" in str(caught.value)
    path.write_text("clients = 5")
    with pytest.raises(ConfigError, match="clients: must be a table, not a number"):
        read(path)


def test_a_key_that_was_deleted_is_a_warning_with_what_to_do_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DELETED, ("gateway", "old"), "use `new`")
    monkeypatch.setitem(DELETED, ("", "older"), "remove it")
    file = tmp_path / "portico.toml"
    file.write_text("older = 1\n[gateway]\nold = true\n")
    assert [str(one) for one in read(str(file)).warnings] == [
        f"{file}:1: older: is no longer used, ignored; remove it",
        f"{file}:3: gateway.old: is no longer used, ignored; use `new`",
    ]
    file.write_text("[gateway]\noldest = true\n")
    with pytest.raises(ConfigError, match=r"gateway\.oldest: unknown key"):
        read(str(file))
