"""Every way to a server with tasks: client and server of either era, directly or merged."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tests.serve.gateway import Gateway, command, serve_command, written
from tests.support.pairs import pairs
from tests.support.running import PLAIN, HttpServer, http_server, portico_run
from tests.support.shared import ROOT
from tests.tasks_protocol.follower import ABLE, ACCEPT, Follower, FollowingPipes, FollowingWeb
from tests.wrap.faults import Wrap

ERAS = ("legacy", "modern")
DOORS = ("wrap", "wrap-stdio", "server", "merged", "executed", "merged-stdio", "executed-stdio")
WAYS = pairs(DOORS, ERAS, ERAS)
"""Door, the client's era, and the server's."""
LIBRARY = ("run", "run-stdio")
LIBRARY_WAYS = [(door, client, "") for door in LIBRARY for client in ERAS]
"""Ways to a server of the library, which speaks both eras."""
TASKS_SERVER = ROOT / "tests" / "rigs" / "tasks_server.py"
ANSWERS = {"elicitation/create": ACCEPT}


def tasks_server() -> list[str]:
    """The command line of the server with a tool for every outcome."""
    return [sys.executable, str(TASKS_SERVER)]


class Doors:
    """Running Porticos and connected clients, each started when it is first needed."""

    server = staticmethod(tasks_server)
    """The command line of the server behind the doors."""

    def __init__(self, folder: Path, by: Sequence[str] = PLAIN, **gateway: Any) -> None:
        """`by` is what runs Portico; `gateway` are settings of the gateway."""
        self._folder = folder
        self._by = by
        self._settings = {"expose": "all", **gateway}
        self.stack = ExitStack()
        self._clients: dict[tuple[str, ...], Follower] = {}
        self._porticos: dict[str, Wrap] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: Any) -> None:
        self.stack.__exit__(*about)

    def client(self, door: str, client: str, server: str) -> Follower:
        """A connected client."""
        merged = door.replace("executed", "merged")  # another way to call, on the same connection
        key = (merged, client, "" if merged.startswith("merged") else server)
        found = self._clients.get(key)
        if found is None:
            found = self._clients[key] = self._connect(*key[:2], server)
        if not key[2]:
            found.prefix = f"{server}__"
            found.executes = door.startswith("executed")
        return found

    def _connect(self, door: str, era: str, server: str) -> Follower:
        more: dict[str, Any] = {"answers": ANSWERS, "modern": era == "modern"}
        if door == "wrap-stdio":
            home = self._folder / f"{door}-{era}-{server}"
            client = FollowingPipes(
                home, "--era", server, "--", *self.server(), by=self._by, **more
            )
        elif door.endswith("-stdio"):
            home = self._folder / f"{door}-{era}"
            client = FollowingPipes(home, words=self.serve(home), **more)
        else:
            return self.stack.enter_context(self.visitor(door, era, server))
        self.stack.enter_context(client)
        if era == "legacy":
            client.hello(ABLE)
        return client

    def port(self, door: str, server: str) -> int:
        """The port of a door over HTTP."""
        return self._wrap(server).port if door == "wrap" else self.gateway().port

    def visitor(self, door: str, era: str, server: str) -> FollowingWeb:
        """A new client over HTTP."""
        path = f"/servers/{server}/mcp" if door == "server" else "/mcp"
        client = FollowingWeb(
            self.port(door, server), path, answers=ANSWERS, modern=era == "modern"
        )
        client.executes = door == "executed"
        if door in ("merged", "executed"):
            client.prefix = f"{server}__"
        if era == "legacy":
            client.hello(ABLE)
        return client

    def gateway(self) -> Gateway:
        """The gateway in front of both servers."""
        if "serve" not in self._porticos:
            made = Gateway(self._folder / "serve", self.config(), by=self._by)
            self._porticos["serve"] = self.stack.enter_context(made)
        found = self._porticos["serve"]
        assert isinstance(found, Gateway)
        return found

    def _wrap(self, era: str) -> Wrap:
        if era not in self._porticos:
            made = Wrap(self._folder / era, "--era", era, "--", *self.server(), by=self._by)
            self._porticos[era] = self.stack.enter_context(made)
        return self._porticos[era]

    def config(self) -> Path:
        path = self._folder / "portico.toml"
        if not path.exists():
            servers = {era: command(self.server(), era=era) for era in ERAS}
            written(path, servers, gateway=self._settings)
        return path

    def serve(self, home: Path) -> list[str]:
        """The command line of the gateway over stdio."""
        return serve_command(home, self.config(), by=self._by)


class LibraryDoors(Doors):
    """All ways to a server behind a link, and to a server of the library behind it."""

    def client(self, door: str, client: str, server: str) -> Follower:
        if door not in LIBRARY:
            return super().client(door, client, server)
        found = self._library.get((door, client))
        if found is None:
            found = self._library[door, client] = self._of_library(door, client)
        return found

    @cached_property
    def _library(self) -> dict[tuple[str, str], Follower]:
        return {}

    def _of_library(self, door: str, era: str) -> Follower:
        more: dict[str, Any] = {"answers": ANSWERS, "modern": era == "modern"}
        client: FollowingWeb | FollowingPipes
        if door == "run":
            client = FollowingWeb(self.port(door, ""), **more)
        else:
            client = FollowingPipes(Path(), words=portico_run(TASKS_SERVER, by=self._by), **more)
        self.stack.enter_context(client)
        if era == "legacy":
            client.hello(ABLE)
        return client

    def port(self, door: str, server: str) -> int:
        return self._served.port if door == "run" else super().port(door, server)

    @cached_property
    def _served(self) -> HttpServer:
        return self.stack.enter_context(http_server(TASKS_SERVER, by=self._by))
