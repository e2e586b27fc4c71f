"""The examples in real processes: before a Python file and the reference server, in `run` and in
`serve`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.gateway import Entry, command, written
from tests.support import node
from tests.support.shared import ROOT
from tests.wrap.faults import Wrap
from tests.wrap.talk import Client, web

SHOP = '''
from portico import Server

server = Server("shop")


@server.tool
def echo(message: str) -> str:
    """Repeat a message."""
    return f"Echo: {message}"


@server.tool(name="get-sum")
def get_sum(a: int, b: int) -> str:
    """Add two numbers."""
    return f"The sum of {a} and {b} is {a + b}."
'''
WAYS = [f"{verb} {kind}" for verb in ("run", "serve") for kind in ("python", "everything")]
EACH_WAY = pytest.mark.parametrize("way", WAYS)
EACH_ERA = pytest.mark.parametrize("era", ["legacy", "modern"])


def example(name: str) -> str:
    """The path of an example."""
    return str(ROOT / "examples" / f"{name}.py")


class Run(Wrap):
    """A running `portico run --http`."""

    verb = "run"


class Serve(Wrap):
    """A running `portico serve --http`."""

    verb = "serve"


class Served:
    """A process that serves examples before a server with the tools `echo` and `get-sum`."""

    def __init__(self, process: Wrap, prefix: str) -> None:
        self._process = process
        self.prefix = prefix
        """The beginning of the names of that server's tools."""

    @contextmanager
    def client(self, era: str, **capabilities: Any) -> Iterator[Client]:
        """A client of an era."""
        with web(self._process.port, capabilities, modern=era == "modern") as client:
            yield client

    def name(self, tool: str) -> str:
        """The name of a tool of that server, for a client."""
        return self.prefix + tool


@contextmanager
def served(
    way: str,
    folder: Path,
    *links: str,
    components: dict[str, Entry] | None = None,
    expose: str = "all",
) -> Iterator[Served]:
    """Serve examples that are links, then those that are components, then the server."""
    verb, kind = way.split()
    shop = folder / "shop.py"
    shop.write_text(SHOP)
    everything = [str(node.node()), str(node.everything_server()), "stdio"]
    files = [example(link) for link in links]
    entries = components or {}
    if verb == "run":
        paths = [entry["path"] for entry in entries.values()]
        last = str(shop) if kind == "python" else " ".join(everything)
        with Run(folder / "home", *files, *paths, last) as process:
            yield Served(process, "")
        return
    servers = {"shop": command(everything)} if kind == "everything" else {}
    entries = entries if servers else {**entries, "shop": {"path": str(shop)}}
    tables = {f"components.{name}": entry for name, entry in entries.items()}
    gateway = {"links": files, "expose": expose}
    config = written(folder / "portico.toml", servers, gateway=gateway, **tables)
    with Serve(folder / "home", "--config", str(config)) as process:
        yield Served(process, "shop__")
