"""`portico stop`: stop the gateway of a config, once its calls are done."""

import os
import time

from portico.config.paths import config_file
from portico.console.running import owners
from portico.console.usage import Parser
from portico.model.errors import PorticoError
from portico.process.family import refuse_below_agent
from portico.windows.control import send_command

_ASK_S = 5.0
_PAUSE_S = 0.05


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
        answer = send_command(folder, name, "stop", _ASK_S)
        if answer is not None and not answer["ok"]:
            raise PorticoError(f"cannot stop process {process}: {answer['error']}")
        while send_command(folder, name, "status", _ASK_S) is not None or _is_alive(int(process)):
            if time.monotonic() > until:
                raise PorticoError(
                    f"process {process} still has calls after {options.within:g} s; "
                    f"`kill {process}` ends them"
                )
            time.sleep(_PAUSE_S)
        print(f"stopped process {process}")
    return 0


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
    parser.add_argument(
        "--within",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="how long to wait for running calls (default 60)",
    )
    return parser
