"""`make run`: start a gateway for several real servers, search it, and call a tool."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path("examples/quickstart.py")
FOLDER = Path(".run")
"""Holds the demo's config; delete it to start over."""
NODE = Path(".tools/bin/node")
NPM_SERVERS = Path(".tools/node_modules/@modelcontextprotocol")
PORT = 8000
_READY_S = 60.0
_QUERY = "what time is it in Tokyo"
_TOOL, _ARGUMENTS = "time__get_current_time", '{"timezone": "Asia/Tokyo"}'


def main() -> int:
    """Run the demo until Ctrl-C or SIGTERM."""
    if not EXAMPLE.is_file():
        print(
            f"portico: {EXAMPLE} not found; run the demo from the root of the repository",
            file=sys.stderr,
        )
        return 1
    config = _config()
    url = f"http://127.0.0.1:{_free_port(PORT)}/mcp"
    address = url.removeprefix("http://").removesuffix("/mcp")
    gateway = _start("serve", "--config", str(config), "--http", address)
    signal.signal(signal.SIGTERM, lambda *_: gateway.terminate())
    try:
        if not _wait_until_ready(gateway, config):
            gateway.terminate()
            return gateway.wait() or 1
        for command in (("search", _QUERY, "--limit", "2"), ("call", _TOOL, _ARGUMENTS)):
            if _start(*command, "--config", str(config)).wait() != 0:
                gateway.terminate()
                return gateway.wait() or 1
        print(_next_steps(config, url), flush=True)
        return gateway.wait()
    except KeyboardInterrupt:
        return gateway.wait()


def _config() -> Path:
    """Return a config with the servers that `make setup` installed; write it on the first run."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "portico.toml"
    if not path.exists():
        path.write_text("\n".join(_entries()), encoding="utf-8")
    return path


def _entries() -> list[str]:
    here = Path(sys.executable).parent
    portico = [sys.executable, "-m", "portico", "run", str(EXAMPLE.resolve())]
    entries = [_entry("weather", portico)]
    for name in ("time", "git"):
        command = here / f"mcp-server-{name}"
        if command.exists():
            entries.append(_entry(name, [str(command)]))
    node = NODE.resolve() if NODE.exists() else shutil.which("node")
    for name in ("everything", "memory", "sequential-thinking"):
        script = NPM_SERVERS / f"server-{name}" / "dist" / "index.js"
        if node and script.exists():
            entries.append(_entry(name, [str(node), str(script.resolve())]))
    return entries


def _entry(name: str, argv: list[str]) -> str:
    quoted = [_toml(word) for word in argv]
    return f"[servers.{name}]\ncommand = {quoted[0]}\nargs = [{', '.join(quoted[1:])}]\n"


def _toml(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _start(*arguments: str) -> "subprocess.Popen[bytes]":
    print(f"\n$ {shlex.join((_portico(), *arguments))}", flush=True)
    return subprocess.Popen([sys.executable, "-m", "portico", *arguments])


def _wait_until_ready(gateway: "subprocess.Popen[bytes]", config: Path) -> bool:
    """Print each server once its tools are known; return False if the gateway has exited."""
    deadline = time.monotonic() + _READY_S
    shown: set[str] = set()
    while time.monotonic() < deadline and gateway.poll() is None:
        servers = _servers(gateway.pid, config)
        for server in servers:
            is_ready = not server["pending"] or server["error"]
            if is_ready and server["server"] not in shown:
                shown.add(server["server"])
                state = server["error"].partition("\n")[0] or f"{server['tools']} tools"
                print(f"  {server['server']:<22} {state}", flush=True)
        if servers and len(shown) == len(servers):
            return True
        time.sleep(0.1)
    return gateway.poll() is None


def _servers(gateway: int, config: Path) -> list[dict[str, Any]]:
    """Return the servers of the gateway with this pid; none while it starts."""
    command = [sys.executable, "-m", "portico", "status", "--json", "--config", str(config)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    running = [one for one in json.loads(shown or "[]") if one.get("pid") == gateway]
    return running[0].get("servers") or [] if running else []


def _token_file() -> Path:
    """Return the file with the bearer token, as docs/write/transports.md names it."""
    home = os.environ.get("PORTICO_HOME")
    if home:
        return Path(home) / "state" / "token"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "portico/token"


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return preferred


def _portico() -> str:
    """Return the command to type here, which may not be on PATH."""
    own = Path(sys.executable).parent / "portico"
    here = Path.cwd()
    return str(own.relative_to(here) if own.is_relative_to(here) else own)


def _next_steps(config: Path, url: str) -> str:
    token = shlex.quote(str(_token_file()))
    argv = [os.path.abspath(_portico()), "serve", "--config", str(config.resolve())]
    entry = {"mcpServers": {"portico": {"command": argv[0], "args": argv[1:]}}}
    portico = shlex.quote(_portico())
    return f"""
Add the gateway to a client, as a command that the client starts:

  claude mcp add portico -- {shlex.join(argv)}

or, for most other clients, in their JSON config:

  {json.dumps(entry)}

or connect to this running gateway:

  claude mcp add --transport http portico {url} \\
    --header "Authorization: Bearer $(cat {token})"

In another terminal, while the gateway runs:

  {portico} status --watch
  {portico} search 'add two numbers' --config {config}
  {portico} servers add NAME --config {config} COMMAND

Press Ctrl-C to stop."""


if __name__ == "__main__":
    sys.exit(main())
