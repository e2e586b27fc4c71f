"""`make run`: a gateway over several real servers; search it, call a tool, add it to a client."""

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

from portico.config.paths import control_folder, state_dir
from portico.model.wording import counted
from portico.windows.control import send_command

EXAMPLE = Path("examples/quickstart.py")
FOLDER = Path(".run")
"""The demo's own config; delete it to begin anew."""
NODE = Path(".tools/bin/node")
NPM_SERVERS = Path(".tools/node_modules/@modelcontextprotocol")
PORT = 8000
_READY_S = 60.0
_ASK_S = 5.0
_QUERY = "what time is it in Tokyo"
_TOOL, _ARGUMENTS = "time__get_current_time", '{"timezone": "Asia/Tokyo"}'


def main() -> int:
    """Show it working; ends with Ctrl-C or SIGTERM."""
    if not EXAMPLE.is_file():
        print(f"portico: run this beside {EXAMPLE}", file=sys.stderr)
        return 1
    config = _config()
    url = f"http://127.0.0.1:{_free_port(PORT)}/mcp"
    address = url.removeprefix("http://").removesuffix("/mcp")
    gateway = _start("serve", "--config", str(config), "--http", address)
    signal.signal(signal.SIGTERM, lambda *_: gateway.terminate())
    try:
        if not _filled(gateway):
            gateway.terminate()
            return gateway.wait() or 1
        for words in (("search", _QUERY, "--limit", "2"), ("call", _TOOL, _ARGUMENTS)):
            if _start(*words, "--config", str(config)).wait() != 0:
                gateway.terminate()
                return gateway.wait() or 1
        print(_how_to_add(config, url), flush=True)
        return gateway.wait()
    except KeyboardInterrupt:
        return gateway.wait()


def _config() -> Path:
    """A config with the real servers that `make setup` installed, written once."""
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


def _filled(gateway: "subprocess.Popen[bytes]") -> bool:
    """Show each server as soon as it says what it offers; False if the gateway ended."""
    deadline = time.monotonic() + _READY_S
    shown: set[str] = set()
    while time.monotonic() < deadline and gateway.poll() is None:
        status = send_command(control_folder(), f"{gateway.pid}.sock", "status", _ASK_S) or {}
        servers: list[dict[str, Any]] = status.get("servers") or []
        for server in servers:
            done = not server["pending"] or server["error"]
            if done and server["server"] not in shown:
                shown.add(server["server"])
                what = server["error"].partition("\n")[0] or counted(server["tools"], "tool")
                print(f"  {server['server']:<22} {what}", flush=True)
        if servers and len(shown) == len(servers):
            return True
        time.sleep(0.1)
    return gateway.poll() is None


def _free_port(wished: int) -> int:
    for port in (wished, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return wished


def _portico() -> str:
    """The command as it is typed here: it need not be on PATH."""
    own = Path(sys.executable).parent / "portico"
    here = Path.cwd()
    return str(own.relative_to(here) if own.is_relative_to(here) else own)


def _how_to_add(config: Path, url: str) -> str:
    import json

    from portico.auth.token import FILE_NAME

    token = shlex.quote(str(state_dir() / FILE_NAME))
    argv = [os.path.abspath(_portico()), "serve", "--config", str(config.resolve())]
    entry = {"mcpServers": {"portico": {"command": argv[0], "args": argv[1:]}}}
    portico = shlex.quote(_portico())
    return f"""
Add it to a client, as a command it starts by itself:

  claude mcp add portico -- {shlex.join(argv)}

or, for most others, in the client's JSON:

  {json.dumps(entry)}

or as this running gateway:

  claude mcp add --transport http portico {url} \\
    --header "Authorization: Bearer $(cat {token})"

In another terminal, while it runs:

  {portico} status --watch
  {portico} search 'add two numbers' --config {config}
  {portico} servers add NAME --config {config} COMMAND

It serves until you press Ctrl-C."""


if __name__ == "__main__":
    sys.exit(main())
