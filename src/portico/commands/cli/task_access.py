"""`python -m portico.commands.cli.task_access`: the MCP server of a delegated task's agent.

Portico itself hands this command to agents, with the task's token in the environment: a process
list shows arguments. It is not a command for people.
"""

import asyncio
import os
import sys

from portico import __version__
from portico.commands.cli.main import embedded
from portico.commands.console.stderr import keep_stdout, log_to_stderr
from portico.core.model.errors import PorticoError
from portico.core.state.report import report
from portico.core.state.stderr import STDERR
from portico.edge.windows.task_window import SOCKET_VARIABLE, TOKEN_VARIABLE
from portico.upstream.process.hardening import harden


def main() -> int:
    """Serve until the agent disconnects, or its access ends."""
    from portico.edge.transport.pipe_loop import PipeLoop
    from portico.edge.windows.task_window import serve_task

    out = keep_stdout(None)
    log_to_stderr()
    token, path = os.environ.get(TOKEN_VARIABLE), os.environ.get(SOCKET_VARIABLE)
    if not token or not path:
        raise PorticoError(
            f"{TOKEN_VARIABLE} and {SOCKET_VARIABLE} are not set: this command is for the agents "
            "of delegated tasks; use `portico serve`"
        )
    with asyncio.Runner(loop_factory=PipeLoop) as runner:
        has_access = runner.run(serve_task(path, token, __version__, out=out))
    if not has_access:
        report("access ended: the task or the gateway has stopped")
    STDERR.flush()
    return 0 if has_access else 1


if __name__ == "__main__":
    harden()  # the environment has the token
    sys.exit(embedded(main))
