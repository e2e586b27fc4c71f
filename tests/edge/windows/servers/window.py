"""A gateway of a few tools, shared by all windows that start in the same folder.

It writes each event as a line to a log there. A file beside the log may name further tools.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from portico import __version__
from portico.core.model.errors import PorticoError
from portico.core.model.types import Endpoint
from portico.edge.transport.pipe_loop import PipeLoop
from portico.edge.windows import owner_process
from portico.edge.windows.control import Command, ControlRequest
from portico.edge.windows.preferences import Preferences
from portico.edge.windows.window import SILENCE_S, SharedGateway, serve_shared
from portico.upstream.process.family import Family

NOTE = "note://one"
book = ""
"""The log of events."""


def enter(words: str) -> None:
    """Write a whole line to the log of events."""
    log = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, f"{os.getpid()} {words}\n".encode())
    os.close(log)


class ToyGateway:
    """The gateway that the owner runs."""

    control_socket = ""
    window_folders: Callable[[], Collection[str]]
    window_clients: Callable[[], Mapping[str, int]]
    is_busy = False

    async def wait_until_idle(self) -> None:
        """Return: there is no work."""

    def __init__(self) -> None:
        from portico import Context, Server

        server = Server("house")
        held: dict[str, asyncio.Event] = {}

        @server.tool
        async def echo(text: str) -> str:
            return text

        @server.tool
        async def who() -> str:
            return str(os.getpid())

        @server.tool
        async def hold(name: str) -> str:
            held[name] = asyncio.Event()
            enter(f"holds {name}")
            try:
                await held[name].wait()
            except asyncio.CancelledError:
                enter(f"drops {name}")
                raise
            return f"held {name}"

        @server.tool
        async def release(name: str) -> str:
            held[name].set()
            return "released"

        @server.tool
        async def ask(*, context: Context) -> str:
            return (await context.elicit("Name?", {"type": "object", "properties": {}})).action

        @server.tool
        async def murmur(*, context: Context) -> str:
            await context.log("debug", "psst")
            return "murmured"

        @server.tool
        async def tell(words: str) -> str:
            for report in self._reporters:
                report(words)
            return "told"

        @server.tool
        async def pour(size: int) -> str:
            return "x" * size

        @server.resource(NOTE)
        async def one() -> str:
            return "one"

        @server.tool
        async def change() -> str:
            server.resource_updated(NOTE)
            return "changed"

        with contextlib.suppress(FileNotFoundError), open(f"{book}.tools") as more:
            for name in more.read().split():
                server.tool(name=name)(who)

        def release_all() -> None:
            for event in held.values():
                event.set()

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, release_all)
        self._reporters: list[Callable[[str], None]] = []
        self._endpoint = server.endpoint()
        self.commands: dict[str, Command] = {"status": self.status}

    def client_endpoint(
        self, preferences: Preferences, family: Family | None = None
    ) -> tuple[Endpoint, Preferences]:
        """Return the same endpoint for all, and the preferences that the client began with."""
        enter(f"lets in {preferences.get('first', 'nobody')}")
        return self._endpoint, {"first": os.getpid(), **preferences}

    def start_refresh(self) -> None:
        """Do nothing: there are no servers."""

    def on_report(self, report: Callable[[str], None]) -> None:
        """Pass the arguments of the tool `tell` to this function."""
        self._reporters.append(report)

    async def status(self, request: ControlRequest) -> dict[str, Any]:
        """Return the counts of resources that can leak."""
        files = len(os.listdir("/proc/self/fd"))
        return {"tasks": len(asyncio.all_tasks()), "files": files, "order": dict(request)}


@asynccontextmanager
async def own() -> AsyncGenerator[ToyGateway, None]:
    """Run the gateway."""
    if "FAILS" in os.environ:
        raise PorticoError("the config is gone")
    enter("owns")
    await asyncio.sleep(float(os.environ.get("SLOW_S", "0")))
    try:
        yield ToyGateway()
    finally:
        enter("leaves")


def shared_gateway(argv: list[str]) -> SharedGateway[ToyGateway]:
    """Return the gateway, for a window and for its owner."""
    global book
    folder, book = argv
    owner_process.LINGER_S = float(os.environ.get("LINGER_S", owner_process.LINGER_S))
    account = os.environ.get("ACCOUNT", "")
    return SharedGateway(
        folder,
        os.environ.get("KEY", "house"),
        own,
        os.environ.get("VERSION", "1"),
        account=lambda: account,
        drain_s=float(os.environ.get("DRAIN_S", "30")),
        detaches="ALONE" not in os.environ,
        owner=(__version__, "tests.edge.windows.servers.window:shared_gateway", folder, book),
        log=lambda: f"{book}.log",
        silence_s=float(os.environ.get("SILENCE_S", SILENCE_S)),
    )


async def main() -> None:
    """Serve until the client disconnects, and log the remaining tasks."""
    await serve_shared(shared_gateway(sys.argv[1:]))
    left = asyncio.all_tasks() - {asyncio.current_task()}
    enter(f"ends with {left}" if left else "ends")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=PipeLoop) as runner:
        try:
            runner.run(main())
        except PorticoError as error:
            sys.exit(f"portico: {error}")
