"""Edits of a config file: one entry changes, and every other character stays."""

import json
import multiprocessing
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.config.read import read
from portico.core.documents import edit_json, edit_toml
from portico.core.documents.edit import add_server, remove_server, set_enabled
from portico.core.documents.problems import ConfigError
from tests.docs.pages import blocks, pages

TOML = """\
# My servers.

[gateway]
expose = "all"      # everything

# Code and issues;
# needs a token.
[servers.github]
command = "npx"
args = [
  "-y",   # no questions
  "server-github",
]
# env = { LATER = "x" }

[servers.github.env]
GITHUB_TOKEN = "${GITHUB_TOKEN:-none}"

# Tickets.
[servers.linear]
url = "https://mcp.linear.app/mcp"   # slow

[unknown-to-nobody]
"""
JSON = """\
{
  // Mine.
  "theme": "dark",
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "files"] }, // first
    /* second */
    "web search": {
      "url": "https://example.com/mcp",
      "custom": [1, 2.50, null]
    }
  },
  "last": true
}
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "portico.toml"
    path.write_text(TOML.replace("[unknown-to-nobody]\n", "[groups]\n"))
    return path


@pytest.fixture
def client(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(JSON)
    return path


def test_a_server_is_added_at_the_end_and_the_rest_stays(toml: Path) -> None:
    before = toml.read_text()
    add_server(
        str(toml), "time", {"command": "uvx", "args": ["mcp-server-time"], "env": {"A": "b"}}
    )
    assert toml.read_text() == before + (
        '\n[servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\nenv = { A = "b" }\n'
    )
    assert read(toml).servers["time"].args == ("mcp-server-time",)


def test_the_first_server_makes_the_file_for_the_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "portico.toml"
    add_server(str(path), "a", {"url": "https://a.example/mcp"})
    assert path.read_text() == '[servers.a]\nurl = "https://a.example/mcp"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_removed_server_takes_its_own_comments_and_tables_along(toml: Path) -> None:
    remove_server(str(toml), "github")
    assert toml.read_text() == (
        '# My servers.\n\n[gateway]\nexpose = "all"      # everything\n\n'
        '# Tickets.\n[servers.linear]\nurl = "https://mcp.linear.app/mcp"   # slow\n\n[groups]\n'
    )


def test_switching_off_and_on_again_changes_one_line(toml: Path) -> None:
    before = toml.read_text()
    assert set_enabled(str(toml), "github", False)
    assert toml.read_text() == before.replace(
        '  "server-github",\n]\n', '  "server-github",\n]\nenabled = false\n'
    )
    assert not set_enabled(str(toml), "github", False)
    assert set_enabled(str(toml), "github", True)
    assert toml.read_text() == before.replace(
        '  "server-github",\n]\n', '  "server-github",\n]\nenabled = true\n'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '[servers]\na = { command = "x" }\n',
            '[servers]\na = { command = "x", enabled = false }\n',
        ),
        ('[servers]\na.command = "x"\n', '[servers]\na.command = "x"\na.enabled = false\n'),
        ('[servers.a]\ncommand = "x"', '[servers.a]\ncommand = "x"\nenabled = false\n'),
        ('servers.a.command = "x"\n', 'servers.a.command = "x"\nservers.a.enabled = false\n'),
        (
            '[servers.a]\r\ncommand = "x"\r\n\r\n[search]\r\n',
            '[servers.a]\r\ncommand = "x"\r\nenabled = false\r\n\r\n[search]\r\n',
        ),
        (
            '[servers.a.env]\nK = "v"\n[servers.a]\ncommand = """\nx"""\n',
            '[servers.a.env]\nK = "v"\n[servers.a]\ncommand = """\nx"""\nenabled = false\n',
        ),
        (
            '[servers."a"]\ncommand = "x"\n"enabled"  =  true # now\n',
            '[servers."a"]\ncommand = "x"\n"enabled"  =  false # now\n',
        ),
    ],
)
def test_each_way_to_write_an_entry_can_be_switched_off(
    before: str, after: str, tmp_path: Path
) -> None:
    path = tmp_path / "portico.toml"
    path.write_bytes(before.encode())
    assert set_enabled(str(path), "a", False)
    assert path.read_bytes() == after.encode()
    assert not read(path).servers["a"].enabled


def test_a_server_is_added_to_a_clients_file_in_its_own_style(client: Path) -> None:
    add_server(str(client), "time", {"command": "uvx", "args": ["time"]})
    assert client.read_text() == JSON.replace(
        "    }\n  },\n",
        '    },\n    "time": {\n      "command": "uvx",\n      "args": [\n        "time"\n      ]\n'
        "    }\n  },\n",
    )


def test_of_a_clients_file_the_last_server_leaves_no_comma(client: Path) -> None:
    remove_server(str(client), "web-search")
    assert client.read_text() == (
        '{\n  // Mine.\n  "theme": "dark",\n  "mcpServers": {\n'
        '    "files": { "command": "npx", "args": ["-y", "files"] } // first\n'
        '    /* second */\n  },\n  "last": true\n}\n'
    )
    remove_server(str(client), "files")
    assert read(client).servers == {}
    assert '"last": true' in client.read_text()


def test_in_a_clients_file_a_server_is_switched_as_clients_do(client: Path) -> None:
    set_enabled(str(client), "web search", False)
    assert '"custom": [1, 2.50, null],\n      "disabled": true\n' in client.read_text()
    set_enabled(str(client), "files", False)
    assert '["-y", "files"], "disabled": true }, // first' in client.read_text()
    assert [server.enabled for server in read(client).servers.values()] == [False, False]
    set_enabled(str(client), "files", True)
    assert '["-y", "files"], "disabled": false }, // first' in client.read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "mcpServers": {\n    "a": {\n      "url": "https://a"\n    }\n  }\n}'),
        (
            '{\n\t"servers": {}\n}\n',
            '{\n\t"servers": {\n\t\t"a": {\n\t\t\t"url": "https://a"\n\t\t}\n\t}\n}\n',
        ),
        ('{"servers": {"b": {}}}', '{"servers": {"b": {}, "a": {"url": "https://a"}}}'),
        (
            '\ufeff{\n  "servers": {\n    "b": {},\n  },\n}',
            '\ufeff{\n  "servers": {\n    "b": {},\n    "a": {\n      "url": "https://a"\n'
            "    },\n  },\n}",
        ),
        (
            '{\n  "servers": {\n    // none yet\n  }\n}',
            '{\n  "servers": {\n    // none yet\n    "a": {\n      "url": "https://a"\n'
            "    }\n  }\n}",
        ),
    ],
)
def test_each_shape_of_json_takes_a_server(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(before)
    add_server(str(path), "a", {"url": "https://a"})
    assert path.read_text() == after


@pytest.mark.parametrize("text", ["[servers\n", "a = 1\na = 2\n", '{"mcpServers": {', "\xff"])
def test_a_file_that_does_not_parse_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / ("x.json" if text[0] == "{" else "x.toml")
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError):
        add_server(str(path), "a", {"url": "https://a"})
    assert path.read_bytes() == text.encode("latin-1")
    assert os.listdir(tmp_path) == [path.name]


def test_what_cannot_be_changed_safely_is_left_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    path.write_text('servers = { a = { command = "x" } }\n')
    with pytest.raises(ConfigError, match="edit the file by hand"):
        add_server(str(path), "b", {})
    with pytest.raises(ConfigError, match="edit the file by hand"):
        remove_server(str(path), "a")
    assert path.read_text() == 'servers = { a = { command = "x" } }\n'


def test_names_are_checked_and_near_ones_proposed(toml: Path) -> None:
    with pytest.raises(ConfigError, match="already"):
        add_server(str(toml), "github", {})
    with pytest.raises(ConfigError, match="try a-b"):
        add_server(str(toml), "a b", {})
    with pytest.raises(ConfigError, match="did you mean github"):
        remove_server(str(toml), "githb")
    with pytest.raises(ConfigError, match="choose from github, linear"):
        set_enabled(str(toml), "zzz", True)


def test_of_two_tables_each_server_is_found_by_the_name_it_has(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    path.write_text('[servers.a]\ncommand = "x"\n\n[mcp_servers.a]\ncommand = "y"\n')
    second = list(read(path).servers)[1]
    set_enabled(str(path), second, False)
    assert [server.enabled for server in read(path).servers.values()] == [True, False]
    remove_server(str(path), "a")
    assert path.read_text() == '[mcp_servers.a]\ncommand = "y"\nenabled = false\n'


def test_a_link_stays_a_link_and_the_mode_stays(toml: Path, tmp_path: Path) -> None:
    toml.chmod(0o640)
    link = tmp_path / "elsewhere" / "portico.toml"
    link.parent.mkdir()
    link.symlink_to(toml)
    set_enabled(str(link), "linear", False)
    assert link.is_symlink()
    assert "enabled = false" in toml.read_text()
    assert stat.S_IMODE(toml.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "portico.toml"]


def test_what_another_editor_saves_meanwhile_is_kept(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, theirs = os.fsync, "\n[servers.theirs]\nurl = 'https://t'\n"

    def slow(handle: int) -> None:
        real(handle)
        if theirs not in toml.read_text():
            toml.write_text(toml.read_text() + theirs)

    monkeypatch.setattr(os, "fsync", slow)
    add_server(str(toml), "ours", {"url": "https://o"})
    assert list(read(toml).servers) == ["github", "linear", "theirs", "ours"]


def _add_many(path: str, start: int) -> None:
    for number in range(start, start + 10):
        add_server(path, f"s{number}", {"command": "x"})


def test_several_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_add_many, args=(str(path), n * 10)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted(read(path).servers) == sorted(f"s{n}" for n in range(40))
    assert os.listdir(tmp_path) == ["portico.toml"]


def test_a_full_disk_changes_nothing_and_leaves_nothing(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = toml.read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left on device; the file is unchanged"):
        remove_server(str(toml), "github")
    assert toml.read_text() == before
    assert os.listdir(toml.parent) == [toml.name]


_BLOCKS = [
    block.text
    for page in pages()
    for block in blocks(page)
    if block.language == "toml" and "..." not in block.text
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_of_each_config_in_the_docs_an_edit_keeps_all_other_lines(newline: str) -> None:
    assert len(_BLOCKS) > 20
    for block in _BLOCKS:
        text = block.replace("\n", newline)
        before = text.splitlines(keepends=True)
        more = edit_toml.added(text, ("servers",), "NEW", {"command": "new"})
        more = edit_toml.appended(more, ("routing", "NEW"), [{"a": 1}, {"a": 2}])
        more = edit_toml.added(more, ("between",), "x", {"a": 1})
        more = edit_toml.appended(more, ("routing", "NEW"), [{"a": 3}])
        more = edit_toml.with_value(more, ("servers", "NEW", "enabled"), False)
        assert more.splitlines(keepends=True)[: len(before)] == before
        assert more.count("\n") == more.count(newline)
        data = tomllib.loads(more)
        assert data["servers"]["NEW"] == {"command": "new", "enabled": False}
        assert data["routing"]["NEW"] == [{"a": 1}, {"a": 2}, {"a": 3}]
        less = edit_toml.removed(more, ("servers", "NEW"))
        assert less.splitlines(keepends=True)[: len(before)] == before
        known = tomllib.loads(text).get("servers", {})
        assert tomllib.loads(less).get("servers", {}) == known


_words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
_entries = st.fixed_dictionaries(
    {"command": _words.filter(str.strip)},
    optional={
        "args": st.lists(_words, max_size=3),
        "env": st.dictionaries(_words, _words, max_size=2),
        "enabled": st.booleans(),
    },
)
_names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
_files = st.dictionaries(_names, _entries, max_size=4)
_comments = st.sampled_from(["", "# about it\n", "\n", "\n# far\n\n", "# é [x]\n# y = 1\n"])


@given(_files, st.data())
def test_any_entry_added_to_any_toml_can_be_removed_again(
    servers: dict[str, Any], data: st.DataObject
) -> None:
    text = data.draw(_comments)
    for name, entry in servers.items():
        text = edit_toml.added(text, ("servers",), name, entry) + data.draw(_comments)
    assert tomllib.loads(text).get("servers", {}) == servers
    entry = data.draw(_entries)
    more = edit_toml.added(text, ("servers",), "NEW", entry)
    assert more.startswith(text)
    assert tomllib.loads(more)["servers"] == {**servers, "NEW": entry}
    assert tomllib.loads(edit_toml.removed(more, ("servers", "NEW"))) == tomllib.loads(text)
    off = edit_toml.with_value(more, ("servers", "NEW", "enabled"), False)
    assert tomllib.loads(off)["servers"] == {**servers, "NEW": {**entry, "enabled": False}}


@given(_files, _entries, st.sampled_from([None, 1, 2, "\t"]), st.booleans())
def test_any_entry_added_to_any_json_can_be_removed_again(
    servers: dict[str, Any], entry: dict[str, Any], indent: Any, crlf: bool
) -> None:
    document = {"a": [1, {"b": "}{,//"}], "mcpServers": servers, "z": None}
    text = json.dumps(document, indent=indent)
    text = text.replace("\n", "\r\n") if crlf else text
    more = edit_json.added(text, ("mcpServers",), "NEW", entry)
    assert json.loads(more) == {**document, "mcpServers": {**servers, "NEW": entry}}
    assert json.loads(edit_json.removed(more, ("mcpServers", "NEW"))) == document
    off = edit_json.with_value(more, ("mcpServers", "NEW", "enabled"), False)
    assert json.loads(off)["mcpServers"]["NEW"] == {**entry, "enabled": False}
    if "\r\n" in text:
        assert "\n" not in more.replace("\r\n", "")
