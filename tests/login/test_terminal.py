"""A login in a real terminal: what a person sees, pastes and types."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from tests.login.people import Person
from tests.rigs.issuer import IssuerRig
from tests.support.running import WAIT_S
from tests.support.shared import unavailable
from tests.wrap.faults import portico_command, until

pytestmark = pytest.mark.slow


class Terminal:
    """A terminal of tmux, on a server of its own."""

    def __init__(self, folder: Path, person: Person, *words: str) -> None:
        if shutil.which("tmux") is None:
            unavailable("tmux is not installed")
        self._socket = str(folder / "tmux.sock")
        command = shlex.join(portico_command(person.home, *words))
        env = {**person.environment("leave"), "TERM": "xterm-256color"}
        env.pop("TMUX", None)
        # The shell stays, so that the last screen does too.
        shown = f"{command}; echo ended with $?; cat"
        size = ("-x", "300", "-y", "50")
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, shown, env=env)

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        argv = ["tmux", "-S", self._socket, *words]
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=WAIT_S, check=True
        )
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def screen(self) -> str:
        """All that is on the screen, and above it."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def shows(self, text: str) -> bool:
        """True once the screen has this text."""
        return until(lambda: text in self.screen())

    def type(self, text: str) -> None:
        """Type a line."""
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def press(self, key: str) -> None:
        """Press a key, such as C-c."""
        self._tmux("send-keys", key)


@pytest.fixture
def rig() -> Iterator[IssuerRig]:
    with IssuerRig() as made:
        yield made


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def ended(url: str) -> str:
    """The URL at which a browser on another machine ends."""
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=WAIT_S)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        with connection.getresponse() as response:
            return str(response.headers["location"])


def test_a_person_pastes_the_url_of_a_browser_on_another_machine(
    rig: IssuerRig, person: Person, tmp_path: Path
) -> None:
    with Terminal(tmp_path, person, "servers", "login", rig.url, "--no-browser") as terminal:
        assert terminal.shows("paste the URL that it ends at here:")
        (url,) = [word for word in terminal.screen().split() if "/authorize?" in word]
        terminal.type("http://127.0.0.1:1/callback?code=x")
        assert terminal.shows("that is not the URL at which this login ends; paste it:")
        terminal.type(ended(url))
        assert terminal.shows(f"logged in at {rig.url} as ann@people.test, with the scopes read")
        assert terminal.shows("ended with 0")
    assert person.call(rig.url, "whoami").stdout == "you are ann\n"


def test_a_key_is_typed_without_an_echo(rig: IssuerRig, person: Person, tmp_path: Path) -> None:
    with Terminal(tmp_path, person, "servers", "login", rig.url, "--key") as terminal:
        assert terminal.shows(f"key for {rig.url}:")
        terminal.type("k3y-of-mine")
        assert terminal.shows(f"logged in at {rig.url}")
        assert "k3y-of-mine" not in terminal.screen()


def test_ctrl_c_ends_a_login_without_a_trace(
    rig: IssuerRig, person: Person, tmp_path: Path
) -> None:
    with Terminal(tmp_path, person, "servers", "login", rig.url) as terminal:
        assert terminal.shows("paste the URL that it ends at here:")
        terminal.press("C-c")
        assert terminal.shows("ended with 130")
        assert "Traceback" not in terminal.screen()
    logins = [name for name in os.listdir(person.home / "state" / "logins") if len(name) == 32]
    assert logins == []
