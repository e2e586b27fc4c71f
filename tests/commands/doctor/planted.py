"""A healthy setup in a home of its own, and faults to plant in it."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from portico.commands.cli.main import main
from portico.commands.console.running import running_statuses
from portico.core.catalog.catalog_store import CatalogStore
from portico.upstream.auth.login import Login, LoginFacts, LoginPlace
from portico.upstream.auth.login_store import LoginStore
from portico.upstream.process.children_file import pids_name
from portico.upstream.process.process_tree import start_of
from tests.agents.turns.rig import FAKE
from tests.support.running import EVERYTHING, http_server
from tests.wrap.standing import until

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    result = {"tools": [], "protocolVersion": sys.argv[1], "capabilities": {"tools": {}}}
    result["serverInfo"] = {"name": "s", "version": "1"}
    known = asked.get("method") in ("initialize", "tools/list")
    answer = {"result": result} if known else {"error": {"code": -32601, "message": "unknown"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""
DEAF = "import signal, time; signal.signal(15, 1); print('up', flush=True); time.sleep(600)"


class Setup:
    """A home with a config, a server that works, and nothing wrong."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.home, self.user, self.project = (folder / one for one in ("home", "user", "project"))
        self.stack = stack
        self.script = folder / "server.py"
        self.script.write_text(SERVER)
        self.config = self.home / "config" / "portico.toml"
        for one in (self.config.parent, self.home / "state", self.home / "cache"):
            one.mkdir(parents=True, mode=0o700)
        (self.home / "state").chmod(0o700)
        self.user.mkdir()
        self.project.mkdir()
        self.config.write_text(self.server("good"))
        self.config.chmod(0o600)

    def environment(self) -> dict[str, str]:
        return {"PORTICO_HOME": str(self.home), "HOME": str(self.user)}

    def words(self, version: str = "2025-11-25") -> list[str]:
        return ["-I", "-S", str(self.script), version]

    def server(self, name: str, version: str = "2025-11-25") -> str:
        command = json.dumps(sys.executable)
        args = json.dumps(self.words(version))
        return f"[servers.{name}]\ncommand = {command}\nargs = {args}\n"

    def add(self, text: str) -> None:
        self.config.write_text(self.config.read_text() + text)

    def agent(self, script: dict[str, object]) -> None:
        args = json.dumps(["-I", "-S", str(FAKE), json.dumps(script)])
        about = f'command = "{sys.executable}"\nargs = {args}\ncapabilities = ["code"]\n'
        self.add(f'[[agents]]\nid = "helper"\n{about}')

    def client(self, file: Path, name: str = "again") -> None:
        file.parent.mkdir(exist_ok=True)
        entry = {"command": sys.executable, "args": self.words()}
        own = {"command": "portico", "args": ["serve"]}
        file.write_text(json.dumps({"mcpServers": {name: entry, "portico": own}}))

    @contextmanager
    def gateway(self) -> Iterator[None]:
        """A real gateway of this config, alone."""
        command = [sys.executable, "-m", "portico", "serve", "--alone"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

        def is_up() -> bool:
            found = (status for _, status in running_statuses())
            return any(one["pid"] == process.pid and "gateway" in one for one in found)

        try:
            until(is_up, "the gateway did not start")
            yield
        finally:
            process.communicate(timeout=60)


Plant = Callable[[Setup], object]


def _mode(path: str, mode: int) -> Plant:
    return lambda setup: (setup.home.parent / path).chmod(mode)


def _added(text: str) -> Plant:
    return lambda setup: setup.add(text)


def _broken_runtime(setup: Setup) -> None:
    folder = setup.user / "bin"
    folder.mkdir()
    (folder / "npx").write_text("#!/bin/sh\nexit 3\n")
    (folder / "npx").chmod(0o755)
    setup.add(f'[servers.x]\ncommand = "npx"\nenv = {{ PATH = "{folder}" }}\n')


def _nothing_listens(setup: Setup) -> None:
    held = setup.stack.enter_context(socket.socket())
    held.bind(("127.0.0.1", 0))  # bound, and not listening: no other process can take it
    setup.add(f'[servers.x]\nurl = "http://127.0.0.1:{held.getsockname()[1]}/mcp"\n')


def _sse(setup: Setup) -> None:
    server = setup.stack.enter_context(http_server(EVERYTHING))
    url = server.url.replace("/mcp", "/sse")
    setup.add(f'[servers.x]\nurl = "{url}"\ntype = "sse"\n')


def _login(setup: Setup, url: str, **facts: Any) -> None:
    setup.add(f'[servers.x]\nurl = "{url}"\n')
    known = LoginFacts(id="1", place="x", **facts)
    login = Login(facts=known, url=url, access="token")
    LoginStore(str(setup.home / "state")).save(LoginPlace(url, "x").key, login)


def _login_ends(setup: Setup) -> None:
    server = setup.stack.enter_context(http_server(EVERYTHING))
    _login(setup, server.url, ends=time.time() + 86_400)


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(401)
        self.send_header("www-authenticate", "Bearer")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _no_login(setup: Setup) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Refusing)
    setup.stack.callback(server.server_close)
    setup.stack.callback(server.shutdown)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    setup.add(f'[servers.x]\nurl = "http://127.0.0.1:{server.server_port}/mcp"\n')


def _old_catalog(setup: Setup) -> None:
    assert main(["servers", "refresh", "--config", str(setup.config)]) == 0
    store = CatalogStore(setup.home / "cache" / "catalogs")
    for file in (setup.home / "cache" / "catalogs").glob("*.catalog"):
        offer = store.load(file.stem)
        assert offer is not None
        assert store.save(file.stem, replace(offer, taken=time.time() - 40 * 86_400))


def _draft(setup: Setup) -> None:
    folder = setup.home / "state" / "tasks"
    folder.mkdir(exist_ok=True)
    file = folder / ".x.0011.draft"
    file.write_text("half")
    long_ago = time.time() - 7200
    os.utime(file, (long_ago, long_ago))


def _orphan(setup: Setup) -> None:
    """A process as a killed Portico leaves it: in its file, whose lock is free."""
    command = [sys.executable, "-I", "-S", "-c", DEAF]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    setup.stack.callback(process.communicate)
    setup.stack.callback(process.kill)
    assert process.stdout is not None
    process.stdout.readline()
    folder = setup.home / "state" / "children"
    folder.mkdir(exist_ok=True)
    mark = os.urandom(8).hex()
    (folder / f"1-{pids_name()}-dead").write_text(
        f"+{mark} {process.pid} {start_of(process.pid)}\n"
    )
    with (folder / f"2-{pids_name()}-alive").open("w") as held:
        held.write(f"+{mark} {os.getpid()} {start_of(os.getpid())}\n")
    setup.stack.enter_context(held_lock(folder / f"2-{pids_name()}-alive"))


@contextmanager
def held_lock(path: Path) -> Iterator[None]:
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _component(setup: Setup) -> None:
    file = setup.project / "tools.py"
    file.write_text("from portico import Server\nserver = Server('x')\n")
    file.chmod(0o666)
    setup.add(f'[components.x]\npath = "{file}"\n')


def _token(setup: Setup) -> None:
    file = setup.home / "state" / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o644)


def _no_cache(setup: Setup) -> None:
    (setup.home / "cache").rmdir()
    (setup.home / "cache").write_text("a file")


def _two_gateways(setup: Setup) -> None:
    setup.stack.enter_context(setup.gateway())
    setup.stack.enter_context(setup.gateway())


def _unlinked(setup: Setup) -> None:
    setup.config.unlink()


LOGIN = {"error": {"code": -32000, "message": "log in"}}
STATUS = {
    "capabilities": {"auth": {"status": {}}},
    "answers": {"auth/status": {"result": {"state": "unauthenticated"}}},
}

PLANTED: dict[str, tuple[str, Plant]] = {
    "no config": ("no-config", _unlinked),
    "a config that is not TOML": ("config", _added("[servers.x\n")),
    "an unknown key": ("config", _added("[gatway]\nhttp = 1\n")),
    "a variable that is not set": (
        "unresolved",
        _added('[servers.x]\ncommand = "x"\nenv = { A = "${PORTICO_NOT_SET}" }\n'),
    ),
    "a config that all can write": ("writable-config", _mode("home/config/portico.toml", 0o606)),
    "a config that a group can write": (
        "writable-config",
        _mode("home/config/portico.toml", 0o660),
    ),
    "a component that all can write": ("writable-config", _component),
    "a token that all can read": ("token", _token),
    "a file in the place of the cache": ("no-folder", _no_cache),
    "a command that is not there": (
        "no-command",
        _added('[servers.x]\ncommand = "portico-nowhere"\n'),
    ),
    "a runtime that fails": ("broken-runtime", _broken_runtime),
    "a server that exits": ("unreachable", _added('[servers.x]\ncommand = "false"\n')),
    "a URL where nothing listens": ("unreachable", _nothing_listens),
    "a server of another version": (
        "wrong-version",
        lambda setup: setup.add(setup.server("x", "1999-01-01")),
    ),
    "a server over HTTP+SSE": ("old-transport", _sse),
    "a login that has ended": (
        "login",
        lambda setup: _login(setup, "https://api.test/mcp", ended="the login has ended"),
    ),
    "a login that ends soon": ("login-ends", _login_ends),
    "a server that wants a login": ("login", _no_login),
    "old lists": ("old-catalog", _old_catalog),
    "unfinished files": ("drafts", _draft),
    "an orphan": ("orphan", _orphan),
    "a client's own server": (
        "client",
        lambda setup: setup.client(setup.user / ".cursor" / "mcp.json"),
    ),
    "a project's own server": (
        "client",
        lambda setup: setup.client(setup.project / ".mcp.json"),
    ),
    "a broken file of a client": (
        "client-file",
        lambda setup: (setup.project / ".mcp.json").write_text("{"),
    ),
    "two gateways": ("two-gateways", _two_gateways),
    "an agent that is not installed": (
        "agent",
        _added('[[agents]]\nid = "helper"\ncommand = "portico-none"\ncapabilities = ["code"]\n'),
    ),
    "an agent that refuses sessions without a login": (
        "agent-login",
        lambda setup: setup.agent({"answers": {"session/new": LOGIN}}),
    ),
    "an agent that reports no login": ("agent-login", lambda setup: setup.agent(STATUS)),
}
"""Each fault with its id, and how to plant it."""
