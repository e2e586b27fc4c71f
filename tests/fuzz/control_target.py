"""The control socket of a real gateway is fuzzed with lines of anyone who may connect to it."""

import json
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from portico.edge.windows.control import MAX_LINE
from tests.fuzz import expect
from tests.fuzz.targets import PATIENCE_S, Broken
from tests.serve.gateway import Pipes

WANTS = {"expose": "search", "folder": "/", "group": "g", "task_token": "t"}
CONFIG = """
[components.calc]
path = "calc.py"

[[agents]]
id = "helper"
capabilities = ["code"]
command = "no-such-agent"
"""
CALC = """
from portico import Server

server = Server("calc")
"""
PING = b'{"jsonrpc":"2.0","id":"good","method":"ping"}\n'


class ControlTarget:
    """Each line gets one reply; a window that is attached is served; and so is the next one."""

    name = "control"
    group = 10
    valid: Sequence[Any] = (
        {"do": "status"},
        {"do": "status", "server": "none"},
        {"do": "refresh"},
        {"do": "refresh", "server": "none", "wait": True},
        {"do": "attach"},
        {"do": "attach", "generation": 1, "preferences": WANTS, "config": "c", "account": "a"},
        {"do": "attach", "generation": 3, "preferences": {"expose": "all"}},
        {"do": "none"},
    )

    def __init__(self, random: Random) -> None:
        self._home = tempfile.TemporaryDirectory()
        home = Path(self._home.name)
        config = home / "portico.toml"
        config.write_text(CONFIG)
        (home / "calc.py").write_text(CALC)
        self._window = Pipes(home, config, watched=False)
        self._window.initialize("2025-11-25")
        self._socket = home / "state" / "control" / f"{self._window.owner}.sock"

    def feed(self, inputs: Sequence[bytes]) -> None:
        """Send each input over a connection of its own, then one that is right."""
        for body in inputs:
            lines = [line for line in body.split(b"\n") if not _is_stop(line)]
            try:
                self._send(lines)
            except (OSError, ValueError) as error:
                why = f"{type(error).__name__}: {error}\n{self._logged()}"
                raise Broken(why, [body]) from error
        self._check(inputs)

    def _send(self, lines: Sequence[bytes]) -> None:
        with self._connected() as talk, talk.makefile("rb") as replies:
            for line in lines:
                if len(line) >= MAX_LINE:  # the rest of it is not read: that resets the connection
                    with suppress(OSError):
                        talk.sendall(line + b"\n")
                    return
                talk.sendall(line + b"\n")
                reply = json.loads(replies.readline())
                if "ok" not in reply:
                    raise ValueError(f"not a reply: {reply}")
                if reply["ok"] and _command(line) == "attach" and not reply.get("other_account"):
                    self._use(talk, replies)
                    return
                if _command(line) == "attach":
                    return

    def _use(self, talk: socket.socket, replies: Any) -> None:
        """Use a connection as the window that it is now."""
        talk.sendall(PING)
        while json.loads(_message(replies.readline())).get("id") != "good":
            pass

    def _check(self, inputs: Sequence[bytes]) -> None:
        with self._connected() as talk, talk.makefile("rb") as replies:
            talk.sendall(b'{"do":"status"}\n')
            if not json.loads(replies.readline())["ok"]:
                raise Broken("no status", inputs)
        if "Traceback" in (log := self._logged()):
            raise Broken(log, inputs)

    def _connected(self) -> socket.socket:
        talk = socket.socket(socket.AF_UNIX)
        talk.settimeout(PATIENCE_S)
        talk.connect(str(self._socket))
        return talk

    def _logged(self) -> str:
        logs = Path(self._home.name).rglob("*.log")
        return "\n".join(log.read_text(errors="replace") for log in logs) + self._window.stderr()

    def close(self) -> None:
        """End the gateway with its last window."""
        with self._window:
            pass
        self._home.cleanup()


def _command(line: bytes) -> Any:
    request = expect.read(line)
    return request.get("do") if isinstance(request, dict) else None


def _is_stop(line: bytes) -> bool:
    return bool(_command(line) == "stop")


def _message(line: bytes) -> bytes:
    """A line for the client; one for its window has no id."""
    return b"{}" if line.startswith(b"#") else line
