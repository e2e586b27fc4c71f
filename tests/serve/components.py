"""A folder with components and a config of them, for real gateways."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.serve.gateway import Entry, Gateway, serve_command, written
from tests.wrap.talk import Client, Pipes, web

WAYS = [(over, modern) for over in ("stdio", "http") for modern in (False, True)]
"""Each transport, in both eras."""

CALC = '''
from portico import Server

server = Server("calc")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


class Workshop:
    """A folder with the files of components, and the config that names them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.config = folder / "portico.toml"

    def file(self, name: str, text: str) -> Path:
        """A file in the folder; replaced whole, as editors do."""
        path = self.folder / name
        draft = path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(path)
        return path

    def write(
        self,
        components: dict[str, Entry],
        servers: dict[str, Entry] | None = None,
        **settings: Any,
    ) -> Path:
        """Write the config; `settings` are those of the gateway."""
        tables: dict[str, Any] = {f"components.{name}": one for name, one in components.items()}
        groups = settings.pop("groups", {})
        gateway = {"expose": "all", **settings}
        return written(self.config, servers or {}, groups=groups, gateway=gateway, **tables)


@contextmanager
def connected(
    way: tuple[str, bool], config: Path, gateway: Gateway, home: Path
) -> Iterator[Client]:
    """A client of a gateway over HTTP, or of one of its own over stdio."""
    over, modern = way
    if over == "http":
        with web(gateway.port, modern=modern) as client:
            yield client
        return
    with Pipes(home, words=serve_command(home, config), modern=modern) as piped:
        if not modern:
            piped.hello()
        yield piped
