"""`portico stop`: stop the gateway of a config, once its calls are done."""

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from portico.commands.console.parser import Parser
from portico.commands.console.running import owners
from portico.core.config.paths import config_file
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted
from portico.edge.windows.control import send_command
from portico.upstream.process.family import refuse_below_agent

_ASK_S = 5.0
_PAUSE_S = 0.05
_SILENT_S = 0.5
"""The delay before the first report: most gateways end at once."""


def main(argv: list[str]) -> int:
    """Stop each owner of the config and wait until it has exited."""
    options = _parser().parse_args(argv)
    refuse_below_agent("portico stop")
    path = os.path.abspath(options.config or config_file())
    folder, found = owners(path)
    if not found:
        print(f"no gateway is running for {path}")
        return 0
    until = time.monotonic() + options.within
    for name in found:
        process = name.partition(".")[0]
        # A gateway that ends answers nothing more.
        words = ", ".join(_waits_for(send_command(folder, name, "status", _ASK_S) or {}))
        answer = send_command(folder, name, "stop", _ASK_S)
        if answer is not None and not answer["ok"]:
            raise PorticoError(f"cannot stop process {process}: {answer['error']}")
        _wait_for_end(folder, name, words, until, options.within)
        print(f"stopped process {process}")
    return 0


def _wait_for_end(folder: str, name: str, words: str, until: float, within_s: float) -> None:
    """Wait until a gateway has ended, and say for what; raises PorticoError after `until`."""
    process = name.partition(".")[0]
    began, is_told, how = time.monotonic(), False, f"`kill {process}` ends it"
    while send_command(folder, name, "status", _ASK_S) is not None or _is_alive(int(process)):
        now = time.monotonic()
        if now > until:
            raise PorticoError(
                f"process {process} has not ended after {within_s:g} s: it waits for {words}; {how}"
            )
        if not is_told and now - began > _SILENT_S:
            is_told = True
            sys.stderr.write(f"process {process} waits for {words}; {how}\n")
            sys.stderr.flush()
        time.sleep(_PAUSE_S)


def _waits_for(status: dict[str, Any]) -> Iterator[str]:
    """Name what a gateway still does before it ends."""
    gateway = status.get("gateway")
    tasks = gateway.get("tasks_running") if isinstance(gateway, dict) else 0
    if tasks:
        yield f"{counted(tasks, 'task')}"
    servers = status.get("servers")
    busy = 0
    for server in servers if isinstance(servers, list) else ():
        connections = [*(server.get("connections") or ())]
        for placed in server.get("folders") or ():
            connections += placed.get("connections") or ()
        calls = sum(one.get("busy", 0) for one in connections) + server.get("held", 0)
        if calls:
            busy += 1
            yield f"{counted(calls, 'call')} of {server.get('server')}"
    if not (tasks or busy):
        yield "its servers to end"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _parser() -> Parser:
    parser = Parser(
        prog="portico stop",
        description="Stop the gateway that the windows of a config share. Running calls are "
        "finished first. A window that is still open starts a new gateway with its next request.",
    )
    parser.add_config()
    what = "how long to wait for running calls (default 60)"
    parser.add_argument("--within", metavar="SECONDS", type=float, default=60.0, help=what)
    return parser
