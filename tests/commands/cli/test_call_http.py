"""`portico call URL` of our own server: every transport, and the token found where it is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.commands.cli.main import main
from tests.support.running import HttpServer, http_server

pytestmark = pytest.mark.slow

SERVER = '''
from portico import Server

server = Server("demo")


@server.tool
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[HttpServer]:
    component = home / "server.py"
    component.write_text(SERVER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PORTICO_HOME", str(home))
        with http_server(component, "--auth", "token") as running:
            yield running


@pytest.mark.parametrize(
    ("path", "era"),
    [("mcp", "auto"), ("mcp", "modern"), ("mcp/", "legacy"), ("mcp/", "modern"), ("sse", "auto")],
)
def test_the_door_opens_with_the_token_in_the_state_folder(
    path: str,
    era: str,
    server: HttpServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(home))
    url = f"http://127.0.0.1:{server.port}/{path}"
    assert main(["call", url, "shout", "--arg", "text=hi", "--era", era]) == 0
    assert capfd.readouterr().out == "HI\n"


def test_without_it_the_door_stays_closed_and_says_so(
    server: HttpServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    assert main(["call", server.url, "shout", "{}"]) == 1
    said = capfd.readouterr().err
    assert said == (
        f"portico: {server.url} requires a login (HTTP 401); run `portico servers login "
        f"{server.url}`, or give a token with --token or --token-file: no running Portico of yours "
        "listens there\n"
    )


def test_a_token_others_could_read_is_not_used_and_that_is_told(
    server: HttpServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(home))
    token = home / "state" / "token"
    token.chmod(0o644)
    try:
        assert main(["call", server.url, "shout", "{}"]) == 1
    finally:
        token.chmod(0o600)
    assert "is readable by others" in capfd.readouterr().err


def test_a_bare_host_is_told_where_servers_mostly_are(
    server: HttpServer,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(home))
    assert main(["call", f"http://127.0.0.1:{server.port}", "shout"]) == 1
    assert "most servers are at /mcp" in capfd.readouterr().err
