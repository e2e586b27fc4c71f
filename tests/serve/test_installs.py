"""Servers that npx and uvx install: the first start of many, into empty caches."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from portico.edge.windows.control import send_command
from portico.edge.windows.control_sockets import socket_names
from tests.serve.owners import owners_in
from tests.support.running import WAIT_S, Piped, initialize_params
from tests.support.shared import ROOT, unavailable
from tests.support.soak import IS_SOAK, times
from tests.wrap.faults import alive
from tests.wrap.faults import until as comes
from tests.wrap.standing import Standing

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("installs")]

INSTALL_S = times(120, 900)
_VERSIONS = {
    "memory": "2026.8.31 2026.7.4 2026.1.26 2025.11.25 2025.9.25 2025.8.4 2025.4.25",
    "everything": "2026.8.31 2026.8.18 2026.7.4 2026.1.26 2026.1.14 2025.12.18 2025.11.25 2025.9.25"
    " 2025.9.12 2025.8.18",
    "sequential-thinking": "2026.8.31 2026.7.4 2025.12.18 2025.11.25 2025.7.1",
    "filesystem": "2026.8.31",
}
PACKAGES = [
    f"@modelcontextprotocol/server-{name}@{version}"
    for name, versions in _VERSIONS.items()
    for version in versions.split()
]
"""Each is installed into a folder of its own."""
UVX = ("mcp-server-time", "mcp-server-git", "mcp-server-fetch")
SERVER = ROOT / "tests" / "serve" / "servers" / "counting.py"
IMPATIENT = 1
"""A time in which nothing is installed."""


SEARCH = '[gateway]\nexpose = "search"\n'
"""With this, no client waits for the first list of all servers."""


class Installing:
    """A config of servers that are installed when they first start, and a window of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.cache = folder / "npm"
        self.config = folder / "portico.toml"
        self.stack = ExitStack()

    def configure(self, commands: dict[str, list[str]], init_s: float, gateway: str = "") -> None:
        """Write the config."""
        caches = f'npm_config_cache = "{self.cache}", UV_CACHE_DIR = "{self.folder / "uv"}"'
        entries = [
            f"[servers.{name}]\ncommand = {json.dumps(argv[0])}\nargs = {json.dumps(argv[1:])}\n"
            f"env = {{ {caches} }}\n"
            f"timeouts = {{ init = {init_s} }}\n"
            for name, argv in commands.items()
        ]
        self.config.write_text("\n".join((gateway, *entries)))

    def open(self) -> Piped:
        """A window, its client introduced."""
        portico = [sys.executable, "-m", "portico", "serve", "--config", str(self.config)]
        window = Piped(["setsid", "--wait", "env", f"PORTICO_HOME={self.home}", *portico])
        self.stack.enter_context(window)
        window.initialize()
        return window

    def status(self) -> dict[str, dict[str, Any]]:
        """The state of each server, by name; empty if no gateway runs."""
        folder = str(self.home / "state" / "control")
        found = (send_command(folder, name, "status", WAIT_S) for name in socket_names(folder))
        servers = [one for reply in found if reply for one in reply.get("servers", ())]
        return {one["server"]: one for one in servers}

    def owners(self) -> set[int]:
        """The processes that have the gateway."""
        return owners_in(self.home / "state")

    def locks(self) -> list[Path]:
        """The locks of npm: one that was killed leaves its own, and the next waits for a minute."""
        return list(self.cache.glob("_npx/*/*.lock"))


@pytest.fixture
def installing(tmp_path: Path) -> Iterator[Installing]:
    if shutil.which("npx") is None:
        unavailable("npx is not there")
    made = Installing(tmp_path)
    with made.stack:
        yield made
    comes(lambda: not made.owners(), WAIT_S)
    left = made.owners()
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, "an owner outlived the last window and the last installer"


def npx(package: str) -> list[str]:
    return ["npx", "-y", package, *(["."] if "filesystem" in package else [])]


def follow(installing: Installing, done: Callable[[dict[str, dict[str, Any]]], bool]) -> set[str]:
    """Look at the states until this is true; all states that were seen, at most two installing."""
    seen: set[str] = set()

    def look() -> bool:
        servers = installing.status()
        states = [one["state"] for one in servers.values()]
        assert states.count("installing") <= 2, states
        seen.update(states)
        return done(servers)

    assert comes(look, INSTALL_S), installing.status()
    return seen


def are_listed(servers: dict[str, dict[str, Any]]) -> bool:
    return bool(servers) and all(one["tools"] and not one["error"] for one in servers.values())


@pytest.mark.soak
def test_many_servers_of_empty_caches_are_installed_two_at_a_time(
    installing: Installing, record_property: Callable[[str, object], None]
) -> None:
    packages = PACKAGES[: times(3, len(PACKAGES))]
    commands = {f"npx{n}": npx(package) for n, package in enumerate(packages)}
    if IS_SOAK:
        commands |= {name.removeprefix("mcp-server-"): [uvx(installing), name] for name in UVX}
    installing.configure(commands, init_s=times(IMPATIENT, 30))
    installing.open()
    seen = follow(installing, are_listed)
    assert {"installing", "waiting to install"} <= seen
    assert not seen & {"failed", "failing"}
    assert not installing.locks()
    record_property("soak", f"{len(commands)} servers installed, none failed or was killed")


def uvx(installing: Installing) -> str:
    """uvx, in a folder of its own."""
    folder = installing.folder / "tools"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "uv"],
        check=True,
        timeout=INSTALL_S,
    )
    return str(folder / "bin" / "uvx")


def test_an_installer_is_done_before_the_owner_ends(installing: Installing) -> None:
    installing.configure({"one": npx(PACKAGES[0])}, init_s=30, gateway=SEARCH)
    window = installing.open()
    assert comes(lambda: bool(installing.locks()), INSTALL_S)  # npm is at work
    (owner,) = installing.owners()
    window.close_input()
    window.process.wait(WAIT_S)
    assert comes(lambda: not alive({owner}), INSTALL_S)
    assert not installing.locks()
    # npm's cache can be used, also without Portico.
    alone = subprocess.run(
        npx(PACKAGES[0]),
        input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        env={**os.environ, "npm_config_cache": str(installing.cache), "npm_config_offline": "true"},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert b'"result"' in alone.stdout, alone.stderr
    # And its lists are known from now on.
    installing.open()
    assert installing.status()["one"]["tools"]


def test_a_model_learns_that_a_server_is_being_installed(installing: Installing) -> None:
    installing.configure({"one": npx(PACKAGES[0])}, init_s=30, gateway=SEARCH)
    window = installing.open()
    follow(installing, lambda servers: servers["one"]["state"] == "installing")
    found = window.ask(
        "tools/call", {"name": "search_tools", "arguments": {"query": "create entities"}}
    )["result"]
    words = found["content"][0]["text"]
    assert "installing" in words or "one__create_entities" in words
    assert "unavailable" not in words
    called = window.ask(
        "tools/call", {"name": "execute_tool", "arguments": {"name": "one__read_graph"}}
    )
    assert not called["result"].get("isError"), called


def test_wrap_waits_for_an_installer(installing: Installing) -> None:
    limit = ("--init-timeout", str(IMPATIENT), "--env", f"npm_config_cache={installing.cache}")
    with Standing(installing.home, *limit, *npx(PACKAGES[0])) as wrap:
        wrap.initialize()
        assert "read_graph" in wrap.tools()
    assert not installing.locks()


# A stand-in for npx, which takes exactly as long as a test says.

NPX = """\
#!{python}
import os, sys, time
name, folder, *server = sys.argv[1:]
with open(os.path.join(folder, "book"), "a") as book:
    book.write(name + "\\n")
while not os.path.exists(os.path.join(folder, name)):  # it works
    until = time.process_time() + 0.05
    while time.process_time() < until: pass
    time.sleep(0.05)
if open(os.path.join(folder, name)).read() == "fail":
    sys.exit("no such package")
os.execv(sys.executable, [sys.executable, *server])
"""


class Staged(Installing):
    """Servers whose installers wait for the test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.npx = folder / "bin" / "npx"
        self.npx.parent.mkdir()
        self.npx.write_text(NPX.format(python=sys.executable))
        self.npx.chmod(0o755)

    def stage(self, *names: str, more: str = "") -> None:
        """Configure servers of these names, whose installers wait."""
        server = str(SERVER), str(self.folder / "starts")
        argv = {name: [str(self.npx), name, str(self.folder), *server] for name in names}
        self.configure(argv, init_s=1)
        self.config.write_text(f"{self.config.read_text()}\n{more}")

    def finish(self, name: str, how: str = "") -> None:
        """Let an installer end."""
        (self.folder / name).write_text(how)

    def begun(self) -> list[str]:
        """The installers that were started, in order."""
        book = self.folder / "book"
        return book.read_text().split() if book.exists() else []

    def processes(self) -> set[int]:
        """The installers and servers that live."""
        found = set()
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdigit():
                    words = (folder / "cmdline").read_bytes()
                    if str(self.folder).encode() in words and b"portico" not in words:
                        found.add(int(folder.name))
        return alive(found)


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    made = Staged(tmp_path)
    with made.stack:
        yield made
        for name in made.begun():
            made.finish(name)
    assert comes(lambda: not made.owners() and not made.processes(), WAIT_S)


def leave(window: Piped) -> None:
    window.close_input()
    window.process.wait(WAIT_S)


def test_those_that_wait_are_installed_for_the_next_window(staged: Staged) -> None:
    staged.stage("a", "b", "c")
    first = staged.open()
    assert comes(lambda: len(staged.begun()) == 2)
    (owner,) = staged.owners()
    leave(first)
    again = staged.open()
    assert staged.owners() == {owner}
    for name in staged.begun():
        staged.finish(name)
    assert comes(lambda: len(staged.begun()) == 3)
    staged.finish(staged.begun()[-1])
    follow(staged, are_listed)
    assert len(staged.begun()) == 3
    leave(again)


def test_those_that_wait_do_not_keep_the_owner(staged: Staged) -> None:
    staged.stage("a", "b", "c")
    window = staged.open()
    assert comes(lambda: len(staged.begun()) == 2)
    leave(window)
    assert not comes(lambda: not staged.owners(), 3)
    for name in staged.begun():
        staged.finish(name)
    assert comes(lambda: not staged.owners())
    assert len(staged.begun()) == 2


def test_a_removed_server_is_installed_to_the_end(staged: Staged) -> None:
    staged.stage("a", more="[gateway]\ndrain = 0\n")
    staged.open()
    assert comes(lambda: bool(staged.begun()))
    (installer,) = staged.processes()
    staged.config.write_text("[gateway]\ndrain = 0\n")
    assert comes(lambda: "a" not in staged.status())
    assert alive({installer})
    staged.finish("a")
    assert comes(lambda: not staged.processes())


def test_a_stop_waits_for_an_installer_no_longer_than_for_calls(staged: Staged) -> None:
    staged.stage("a", more="[gateway]\ndrain = 1\n")
    staged.open()
    assert comes(lambda: bool(staged.begun()))
    (owner,) = staged.owners()
    os.kill(owner, signal.SIGTERM)
    assert comes(lambda: not alive({owner}))
    assert comes(lambda: not staged.processes() or len(staged.begun()) > 1)


def test_an_installer_that_fails_is_tried_again(staged: Staged) -> None:
    staged.stage("a")
    staged.finish("a", "fail")
    staged.open()
    follow(staged, lambda servers: servers["a"]["retry_in_s"] is not None)
    assert "no such package" in staged.status()["a"]["error"]
    staged.finish("a")
    follow(staged, are_listed)


def started_wrap(staged: Staged, *options: str) -> tuple[Standing, int]:
    """A wrap whose installer works, and that installer."""
    argv = (str(staged.npx), "a", str(staged.folder), str(SERVER), str(staged.folder / "starts"))
    wrap = Standing(staged.home, *options, *argv)
    staged.stack.enter_context(wrap)
    wrap.start("initialize", initialize_params("2025-11-25"))
    assert comes(lambda: bool(staged.begun()))
    (installer,) = {pid for pid in staged.processes() if pid != wrap.process.pid}
    return wrap, installer


def test_an_installer_outlives_a_wrap_that_its_client_kills(staged: Staged) -> None:
    wrap, installer = started_wrap(staged)
    wrap.process.kill()
    wrap.process.wait()
    assert not comes(lambda: not alive({installer}), 3)
    staged.finish("a")
    assert comes(lambda: not alive({installer}))


def test_an_installer_does_not_outlive_a_killed_wrap_for_ever(staged: Staged) -> None:
    wrap, installer = started_wrap(staged, "--install-timeout", "6")
    wrap.process.kill()
    wrap.process.wait()
    assert not comes(lambda: not alive({installer}), 2)
    assert comes(lambda: not alive({installer}))


def test_an_installed_server_ends_with_a_killed_wrap(staged: Staged) -> None:
    wrap, installer = started_wrap(staged)
    staged.finish("a")
    wrap.answer_to(1)
    wrap.process.kill()
    wrap.process.wait()
    assert comes(lambda: not alive({installer}), 10)


def test_a_wrap_finishes_its_installer(staged: Staged) -> None:
    wrap, installer = started_wrap(staged)
    wrap.close_input()
    assert not comes(lambda: not alive({installer}), 3)
    staged.finish("a")
    assert wrap.process.wait(WAIT_S) == 0
    assert not alive({installer})
