"""Tokens that a user gives to a door, and to the commands that go through it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from portico.commands.cli.main import main
from tests.support.node import run_node, ts
from tests.support.running import HttpServer, http_server

TOKEN = "correct-horse-battery-staple"
SERVER = """
import os
from portico import Server

server = Server("open")


@server.tool
def variable(name: str) -> str:
    return os.environ.get(name, "not set")
"""
LIST = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture(params=["file", "variable"])
def server(
    request: pytest.FixtureRequest,
    component: Path,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[HttpServer]:
    """A door with a given token."""
    options = ["--auth", "token"]
    if request.param == "file":
        options += ["--token-file", str(file)]
    else:
        monkeypatch.setenv("PORTICO_TOKEN", TOKEN)
    with http_server(component, *options) as running:
        monkeypatch.delenv("PORTICO_TOKEN", raising=False)
        yield running


def test_a_given_token_opens_the_door_and_is_shown_nowhere(
    server: HttpServer,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    call = ["call", server.url, "variable", "--arg", "name=HOME"]
    title = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert main([*call, "--token-file", str(file)]) == 0
    assert main([*call, "--token", TOKEN]) == 0
    assert main(call) == 1
    monkeypatch.setenv("PORTICO_TOKEN", TOKEN)
    assert main(call) == 0

    said = server.stderr()
    assert TOKEN.encode() not in title
    assert TOKEN not in said + "".join(capfd.readouterr())
    assert "requires the bearer token in " in said
    assert not (tmp_path / "home" / "state" / "token").exists()


def test_a_client_without_the_token_is_told_where_it_is(server: HttpServer, file: Path) -> None:
    refused = httpx2.post(server.url, json=LIST)

    assert refused.status_code == 401
    places = (f"in the file {file}", "in PORTICO_TOKEN")
    assert sum(place in refused.json()["error"]["message"] for place in places) == 1


@pytest.mark.parametrize("command", ["run", "wrap", "serve"])
@pytest.mark.parametrize(
    ("text", "says"),
    [("", "PORTICO_TOKEN is empty"), ("a b", "PORTICO_TOKEN must be one word"), ("abc", "has 3")],
)
def test_a_door_with_a_token_that_is_none_does_not_open(
    command: str,
    text: str,
    says: str,
    component: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PORTICO_TOKEN", text)
    config = tmp_path / "portico.toml"
    config.write_text("")
    config.chmod(0o600)
    what = {
        "run": [str(component)],
        "wrap": ["--", sys.executable, "-m", "portico", "run", str(component)],
        "serve": ["--config", str(config)],
    }[command]

    assert main([command, "--http", "0", *what]) == 1
    assert says in capfd.readouterr().err


def test_a_token_file_and_no_token_exclude_each_other(
    component: Path, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(component), "--http", "0", "--auth", "none", "--token-file", str(file)]

    assert main(words) == 2
    assert "exclude each other" in capfd.readouterr().err


def test_no_server_behind_the_door_sees_its_token(
    component: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PORTICO_TOKEN", TOKEN)
    child = f"{sys.executable} -m portico run {component}"

    assert main(["call", child, "variable", "--arg", "name=PORTICO_TOKEN"]) == 0
    assert (
        main(
            [
                "call",
                f"{sys.executable} -m portico wrap -- {child}",
                "variable",
                "--arg",
                "name=PORTICO_TOKEN",
            ]
        )
        == 0
    )
    env = ["--env", f"PORTICO_TOKEN={TOKEN}"]  # unless it was given to that one
    assert main(["call", child, "variable", "--arg", "name=PORTICO_TOKEN", *env]) == 0

    assert capfd.readouterr().out.split("\n") == ["not set", "not set", TOKEN, ""]


@pytest.mark.slow
def test_a_client_that_looks_for_a_login_shows_its_user_how_to_pass_the_token(
    server: HttpServer,
) -> None:
    done = run_node(ts("login.mjs"), json.dumps({"url": server.url}))

    assert "Authorization: Bearer TOKEN" in done.stdout, done.stderr
    assert "in the file" in done.stdout or "in PORTICO_TOKEN" in done.stdout
