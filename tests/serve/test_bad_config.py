"""A config that cannot be used ends `portico serve` at once, and stderr says where and why."""

import socket
from pathlib import Path

import pytest

from tests.serve.gateway import refused

pytestmark = pytest.mark.slow

CASES = {
    "an unknown key": (
        '[servers.a]\ncommand = "x"\nenviron = {}\n',
        ["portico.toml:3", "servers.a.environ", "did you mean env?"],
    ),
    "an unknown table": ('[server.a]\ncommand = "x"\n', [":1", "server", "did you mean servers?"]),
    "no command": ("[servers.a]\nargs = []\n", [":1", "servers.a", "command"]),
    "a command and a URL": (
        '[servers.a]\ncommand = "x"\nurl = "http://x/mcp"\n',
        [":1", "servers.a", "remove one of them"],
    ),
    "a variable without an end": (
        '[servers.a]\ncommand = "x"\nenv = { KEY = "${PORTICO_NOT_SET" }\n',
        [":3", "servers.a.env.KEY", "add it"],
    ),
    "a name that is there twice": (
        '[servers.a]\ncommand = "x"\n[servers.a]\ncommand = "y"\n',
        [":3", "servers.a"],
    ),
    "a name that is there twice in JSON": (
        '{"mcpServers": {"a": {"command": "x"},\n "a": {"command": "y"}}}',
        [":2", "mcpServers.a", "twice"],
    ),
    "a URL without a scheme": (
        '[servers.a]\nurl = "example.com/mcp"\n',
        [":2", "servers.a.url", "http"],
    ),
    "a group of a server that is not there": (
        '[servers.git]\ncommand = "x"\n[groups.g]\nservers = ["gti"]\n',
        [":4", "groups.g.servers[0]", "did you mean git?"],
    ),
    "a value of the wrong type": (
        '[servers.a]\ncommand = ["x", "y"]\n',
        [":2", "servers.a.command"],
    ),
    "a time that is none": (
        '[servers.a]\ncommand = "x"\ntimeouts = { call = -1 }\n',
        [":3", "servers.a.timeouts.call"],
    ),
    "a name that cannot be one": ('[servers."a b"]\ncommand = "x"\n', [":1", "write "]),
    "broken TOML": ('[servers.a\ncommand = "x"\n', ["portico.toml:1"]),
    "cut TOML": ('[servers.a]\ncommand = "x', ["portico.toml:2"]),
    "broken JSON": ('{"mcpServers": {"a": {"command": "x",,}}}', [":1"]),
    "cut JSON": ('{"mcpServers": {"a": {"comm', [":1"]),
    "JSON that is no object": ("[1, 2]", ["portico"]),
}


@pytest.mark.parametrize(("text", "words"), CASES.values(), ids=CASES)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, words: list[str]) -> None:
    config = tmp_path / f"portico.{'toml' if text.startswith('[server') else 'json'}"
    config.write_text(text)
    code, said = refused(tmp_path / "home", config)
    assert code in (1, 2), said
    assert str(config) in said
    for word in words:
        assert word in said
    assert "Traceback" not in said


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    config = tmp_path / "portico.toml"
    config.write_text('[servers.a]\ncomand = "x"\n[servers.b]\nurl = "b"\n')
    _, said = refused(tmp_path / "home", config)
    assert "servers.a.comand" in said
    assert "servers.b.url" in said


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    odd = tmp_path / "odd.toml"
    odd.write_bytes(b"\xff\xfe\x00binary")
    for config, words in (
        (tmp_path / "nowhere.toml", "nowhere.toml"),
        (tmp_path, "folder"),
        (odd, "UTF-8"),
    ):
        code, said = refused(tmp_path / "home", config)
        assert code in (1, 2)
        assert str(config) in said
        assert words in said
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--group", "nobody"], "nobody"),
        (["--http", "70000"], "70000"),
        (["--http", "nowhere:x"], "nowhere:x"),
        (["--http", "0.0.0.0:0", "--auth", "none"], "loopback"),
        (["--expose", "some"], "auto"),
        (["--drain", "soon"], "'soon' is not a number of seconds"),
        (["--drain", "-5"], "'-5' is not a number of seconds"),
        (["--drain", "nan"], "'nan' is not a number of seconds"),
        (["--http", ""], "not an address"),
        (["--http", "8000", "--stdio"], "not allowed with"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: list[str], words: str) -> None:
    config = tmp_path / "portico.toml"
    config.write_text('[servers.a]\ncommand = "true"\n[groups.g]\nservers = ["a"]\n')
    code, said = refused(tmp_path / "home", config, *options)
    assert code in (1, 2), said
    assert words in said
    assert "Traceback" not in said


def test_an_address_that_somebody_has_is_refused_before_any_server_is_started(
    tmp_path: Path,
) -> None:
    book = tmp_path / "book"
    config = tmp_path / "portico.toml"
    config.write_text(f'[servers.a]\ncommand = "touch"\nargs = ["{book}"]\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refused(tmp_path / "home", config, "--http", str(port))
    remedy = "choose another port, or 0 for any free port"
    assert code == 1
    assert said == f"portico: cannot serve at {port}: Address already in use; {remedy}\n"
    assert not book.exists()
