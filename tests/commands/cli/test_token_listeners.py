"""`inspect` and `call` send Portico's token to this user's own listeners, and to no other."""

import contextlib
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from portico.commands.cli.main import main
from portico.core.config.paths import state_dir
from portico.upstream.auth.token import saved_token
from tests.support.running import WAIT_S, Child

pytestmark = pytest.mark.slow

SERVER = '''
from portico import Server

server = Server("demo")


@server.tool
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()
'''
HELD = '''
from pathlib import Path
from portico import Server

server = Server("held")


@server.tool
def hold() -> str:
    """Wait."""
    Path({begun!r}).write_text("begun")
    return Path({gate!r}).read_text()
'''
COMMANDS = [("inspect",), ("call", "shout", "--arg", "text=hi")]


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The token of our own door, in a home of its own."""
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return saved_token(state_dir())


class Stranger(http.server.ThreadingHTTPServer):
    """Wants a token for everything, and keeps each one that it gets."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, location: str = "") -> None:
        self.location = location
        self.shown: list[str] = []
        self.requests = 0
        super().__init__((host, port), _Refusing)

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}/mcp"


class _Refusing(http.server.BaseHTTPRequestHandler):
    server: Stranger
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.do_GET()

    def do_GET(self) -> None:
        self.server.requests += 1
        self.server.shown += self.headers.get_all("authorization") or []
        self.send_response(307 if self.server.location else 401)
        if self.server.location:
            self.send_header("location", self.server.location)
        self.send_header("www-authenticate", "Bearer")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stranger(port: int = 0, location: str = "") -> Iterator[Stranger]:
    with Stranger("127.0.0.1", port, location) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Door(Child):
    """A real Portico that serves over HTTP and requires the token."""

    def __init__(self, *argv: str, at: str = "127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "portico", argv[0], "--http", at, *argv[1:]]
        super().__init__(command, subprocess.DEVNULL)
        self.url = self._announced()

    def _announced(self) -> str:
        waiting = threading.Event()
        for _ in range(int(WAIT_S / 0.05)):
            found = re.search(r"serving (\S+)", self.stderr())
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            waiting.wait(0.05)
        self.process.kill()
        raise AssertionError(self.stderr())

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].partition("/")[0])


@contextmanager
def door(*argv: str, at: str = "127.0.0.1:0") -> Iterator[Door]:
    running = Door(*argv, at=at)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def component(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
def config(tmp_path: Path, component: Path) -> Path:
    path = tmp_path / "portico.toml"
    command = [sys.executable, "-m", "portico", "run", str(component)]
    path.write_text(f"[servers.demo]\ncommand = {command[0]!r}\nargs = {command[1:]!r}\n")
    path.chmod(0o600)
    return path


def ask(command: tuple[str, ...], url: str, *options: str) -> int:
    return main([command[0], url, *command[1:], *options])


@pytest.mark.parametrize("command", COMMANDS, ids=["inspect", "call"])
@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_stranger_on_this_machine_that_wants_a_token_gets_none(
    command: tuple[str, ...],
    era: str,
    host: str,
    token: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with stranger() as other:
        url = f"http://{host}:{other.server_port}/mcp"
        assert ask(command, url, "--era", era) == 1
        assert (other.requests > 0, other.shown) == (True, [])
    said = capfd.readouterr().err
    assert "requires a login (HTTP 401); run `portico servers login http" in said
    assert token not in said


def test_a_stranger_does_not_get_the_token_of_the_variable(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTICO_TOKEN", "one-of-my-own-choice")
    with stranger() as other:
        assert main(["call", other.url, "shout"]) == 1
        assert (other.requests > 0, other.shown) == (True, [])
    assert token


def test_a_stranger_gets_the_token_that_was_given_for_it(token: str) -> None:
    with stranger() as other:
        assert main(["call", other.url, "shout", "--token", "for-it"]) == 1
        assert set(other.shown) == {"Bearer for-it"}
    assert token


@pytest.mark.parametrize("command", COMMANDS, ids=["inspect", "call"])
@pytest.mark.parametrize("kind", ["run", "wrap", "serve"])
def test_a_portico_of_the_user_gets_it(
    command: tuple[str, ...],
    kind: str,
    token: str,
    component: Path,
    config: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    argv = {
        "run": [str(component)],
        "wrap": ["--", sys.executable, "-m", "portico", "run", str(component)],
        "serve": ["--config", str(config), "--expose", "all"],
    }[kind]
    tool = "demo__shout" if kind == "serve" else "shout"
    asked = tuple(word if word != "shout" else tool for word in command)
    with door(kind, *argv) as ours:
        assert ask(asked, ours.url) == 0, capfd.readouterr().err
        assert ask(asked, f"http://localhost:{ours.port}/mcp") == 0
        out = capfd.readouterr().out
    assert ("HI" in out) == (command[0] == "call")
    assert token not in out


def test_the_one_that_takes_the_port_of_a_dead_portico_gets_none(
    token: str, component: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with door("run", str(component)) as ours:
        port = ours.port
        assert ask(COMMANDS[1], ours.url) == 0
        ours.process.send_signal(signal.SIGKILL)
        ours.ended()
        with stranger(port) as other:
            assert ask(COMMANDS[1], ours.url) == 1
            assert ask(COMMANDS[0], ours.url) == 1
            assert (other.requests > 0, other.shown) == (True, [])
    assert token not in "".join(capfd.readouterr())


def test_the_one_that_takes_the_port_of_a_portico_that_ended_gets_none(
    token: str, component: Path
) -> None:
    with door("run", str(component)) as ours:
        port = ours.port
        assert ours.stop() == 0
        with stranger(port) as other:
            assert ask(COMMANDS[1], ours.url) == 1
            assert (other.requests > 0, other.shown) == (True, [])
    assert token


def test_a_stranger_beside_our_own_address_on_the_same_port_gets_none(
    token: str, component: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with door("run", str(component)) as ours:
        assert ask(COMMANDS[1], ours.url) == 0
        with Stranger("127.0.0.2", ours.port) as other:
            thread = threading.Thread(target=other.serve_forever, args=(0.01,))
            thread.start()
            try:
                assert ask(COMMANDS[1], other.url) == 1
            finally:
                other.shutdown()
                thread.join()
            assert (other.requests > 0, other.shown) == (True, [])
    assert token not in "".join(capfd.readouterr())


def test_a_stranger_that_sends_us_to_our_own_portico_gets_none(
    token: str, component: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with door("run", str(component)) as ours, stranger(location=ours.url) as other:
        assert ask(COMMANDS[1], other.url) == 1
        assert (other.requests > 0, other.shown) == (True, [])
    said = capfd.readouterr().err
    assert "redirects to" in said
    assert token not in said


def test_a_portico_of_another_home_gets_none(
    token: str, component: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with door("run", str(component)) as theirs:
        monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "other"))
        assert saved_token(state_dir()) != token
        assert ask(COMMANDS[1], theirs.url) == 1


def test_the_one_that_takes_the_port_while_a_portico_finishes_its_calls_gets_none(
    token: str, tmp_path: Path
) -> None:
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    os.mkfifo(begun)
    os.mkfifo(gate)
    component = tmp_path / "held.py"
    component.write_text(HELD.format(begun=str(begun), gate=str(gate)))
    with door("run", str(component)) as ours:
        call = Child([sys.executable, "-m", "portico", "call", ours.url, "hold"])
        assert begun.read_text() == "begun"
        ours.process.terminate()
        with taken(ours.port) as other:
            assert ask(COMMANDS[1], ours.url) == 1
            assert (other.requests > 0, other.shown) == (True, [])
        gate.write_text("go")
        assert call.ended() == 0, call.stderr()
    assert token


@contextmanager
def taken(port: int) -> Iterator[Stranger]:
    """A stranger at this port, as soon as it is free."""
    waiting = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        with contextlib.suppress(OSError), stranger(port) as other:
            yield other
            return
        waiting.wait(0.05)
    raise AssertionError(f"port {port} stayed taken")
