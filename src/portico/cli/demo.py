"""`make run`: serve the example over HTTP, call it once, say how to add it to a client, stay up."""

import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

EXAMPLE = Path("examples/quickstart.py")
PORT = 8000
_READY_S = 20.0


def main() -> int:
    """Show it working; ends with Ctrl-C or SIGTERM."""
    if not EXAMPLE.is_file():
        print(f"portico: run this beside {EXAMPLE}", file=sys.stderr)
        return 1
    base = f"http://127.0.0.1:{_free_port(PORT)}"
    server = _start("run", str(EXAMPLE), "--http", base.removeprefix("http://"))
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        if not _ready(base, server):
            return server.wait() or 1
        call = ("call", f"{base}/mcp", "forecast", '{"city": "Oslo", "days": 2}')
        if _start(*call).wait() != 0:
            server.terminate()
            return 1
        print(_how_to_add(base), flush=True)
        return server.wait()
    except KeyboardInterrupt:
        return server.wait()


def _start(*arguments: str) -> "subprocess.Popen[bytes]":
    print(f"\n$ portico {shlex.join(arguments)}", flush=True)
    return subprocess.Popen([sys.executable, "-m", "portico", *arguments])


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


def _ready(base: str, server: "subprocess.Popen[bytes]") -> bool:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{base}/readyz", timeout=1):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    server.terminate()
    return False


def _how_to_add(base: str) -> str:
    from portico.auth.token import FILE_NAME
    from portico.config.paths import state_dir

    token = state_dir() / FILE_NAME
    return f"""
Add it to a client, as a command it starts by itself:

  claude mcp add quickstart -- portico run {shlex.quote(str(EXAMPLE.resolve()))}

or as this running server:

  claude mcp add --transport http quickstart {base}/mcp \\
    --header "Authorization: Bearer $(cat {shlex.quote(str(token))})"

It serves until you press Ctrl-C."""


if __name__ == "__main__":
    sys.exit(main())
