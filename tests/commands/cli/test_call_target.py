"""What TARGET may be, and which options go with it."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.commands.console.target import add_options, address_of, component_of, limits_of
from portico.core.config.paths import state_dir
from portico.library.components.classify import ComponentError
from portico.upstream.auth.own_listeners import ListenerRecord
from portico.upstream.auth.token import saved_token
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.streamable_http import Url
from portico.upstream.wires.wire import Address


def address(*argv: str) -> Address:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    add_options(parser)
    parser.set_defaults(config=None)
    options = parser.parse_args(argv)
    return address_of(component_of(parser, options), options)


def command(*argv: str) -> Command:
    found = address(*argv)
    assert isinstance(found, Command)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("server.py", "tools.json", "my server.py"):
        (tmp_path / name).write_text("{}" if name.endswith(".json") else "")
    return tmp_path


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/mcp", "https://example.test/mcp"])
def test_a_url_is_a_url(url: str) -> None:
    found = address(url, "--header", "X-A: b: c", "--token", "t")
    assert isinstance(found, Url)
    assert (found.url, found.headers) == (url, {"X-A": "b: c"})
    assert found.credentials.header() == "Bearer t"


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    return saved_token(state_dir())


@pytest.fixture
def listening() -> Iterator[None]:
    """A Portico of this user listens at some addresses, on port 8000."""
    hosts = ("127.0.0.1", "::1", "192.168.1.2")
    record = ListenerRecord.write(state_dir(), [(host, 8000) for host in hosts])
    yield
    record.remove()


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("http://127.0.0.1:8000/mcp", "http://127.0.0.1:8000/mcp"),
        ("http://localhost:8000/mcp?a=b", "http://127.0.0.1:8000/mcp?a=b"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
        ("http://[0:0:0:0:0:0:0:1]:8000/mcp", "http://[::1]:8000/mcp"),
        ("http://127.0.0.1:8001/mcp", ""),
        ("http://127.0.0.1/mcp", ""),
        ("http://127.8.9.10:8000/mcp", ""),
        ("https://127.0.0.1:8000/mcp", ""),
        ("http://192.168.1.2:8000/mcp", ""),
        ("http://localhost.evil.test:8000/mcp", ""),
        ("http://127.0.0.1.evil.test:8000/mcp", ""),
        ("http://127.0.0.1@evil.test:8000/mcp", ""),
        ("https://example.test/mcp", ""),
    ],
)
def test_the_token_of_our_own_door_is_for_our_own_listeners_only(
    url: str, where: str, door: str, listening: None
) -> None:
    found = address(url)
    assert isinstance(found, Url)
    assert found.credentials.header() in ("", None)
    assert found.spare_token(url) == (where, door if where else "")


def test_a_token_that_was_given_is_the_only_one(door: str, listening: None) -> None:
    found = address("http://127.0.0.1:8000/mcp", "--token", "mine")
    assert isinstance(found, Url)
    assert (found.credentials.header(), found.spare_token(found.url)) == ("Bearer mine", ("", ""))
    assert door


@pytest.mark.parametrize(
    ("url", "is_shown"),
    [
        ("http://127.0.0.1:8000/mcp", True),
        ("http://127.0.0.1:8001/mcp", False),
        ("https://example.test/mcp", True),
        ("http://example.test/mcp", False),
        ("http://192.168.1.2:8000/mcp", False),
    ],
)
def test_the_token_of_the_variable_goes_where_nobody_else_can_read_it(
    url: str, is_shown: bool, door: str, listening: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTICO_TOKEN", "of-the-variable")
    found = address(url)
    assert isinstance(found, Url)
    assert found.spare_token(url) == ((url, "of-the-variable") if is_shown else ("", ""))
    assert door


def test_the_token_of_a_file_is_sent_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("of-the-file\n")
    file.chmod(0o600)
    found = address("https://example.test/mcp", "--token-file", str(file))
    assert isinstance(found, Url)
    assert found.credentials.header() == "Bearer of-the-file"
    assert found.spare_token(found.url) == ("", "")


def test_looking_for_the_token_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    found = address("http://127.0.0.1/mcp")
    assert isinstance(found, Url)
    assert found.spare_token(found.url) == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("target", ["server.py", "./server.py", "tools.json", "my server.py"])
def test_a_file_is_a_component(target: str) -> None:
    found = command(target)
    assert found.argv == (sys.executable, "-P", "-m", "portico", "run", target)
    assert found.name == target


@pytest.mark.usefixtures("folder")
def test_one_server_of_a_file_can_be_named() -> None:
    assert command("server.py:app").argv[-1] == "server.py:app"


@pytest.mark.usefixtures("folder")
def test_everything_else_is_a_command_without_a_shell() -> None:
    found = command("python 'my server.py' --flag $HOME ; rm", "--env", "KEY=a=b")
    assert found.argv == ("python", "my server.py", "--flag", "$HOME", ";", "rm")
    assert found.env == {"KEY": "a=b"}


def test_a_command_is_named_without_its_paths_and_arguments() -> None:
    assert command("/bin/sh /opt/server/start.sh --token hunter2").name == "sh start.sh"
    assert command("python -c 'print(1/2)'").name == "python"


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ComponentError, match=r"missing\.py: no such file"):
        address("missing.py")


@pytest.mark.parametrize(
    "argv",
    [
        ("",),
        ("unfinished 'quote",),
        ("unfinished 'quote.py",),
        ("http://x/mcp", "--env", "A=b"),
        ("python", "--token", "t"),
        ("python", "--header", "A: b"),
        ("server", "--env", "novalue"),
        ("http://x/mcp", "--header", "secret-without-colon"),
        ("http://x/mcp", "--header", "X: secr\u00e9t"),
        ("http://x/mcp", "--header", "a secret: b"),
        ("server", "--timeout", "soon"),
        ("server", "--timeout", "-1"),
        ("server", "--timeout", "inf"),
        ("server", "--era", "stone"),
    ],
)
def test_wrong_usage_is_two_and_repeats_no_secret(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        address(*argv)
    assert left.value.code == 2
    assert "secret" not in capsys.readouterr().err


def test_one_timeout_is_for_everything() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    limits = limits_of(parser.parse_args(["--timeout", "7"]))
    assert (limits.init_s, limits.list_s, limits.call_s) == (7, 7, 7)
    assert limits_of(parser.parse_args([])).call_s == 120
