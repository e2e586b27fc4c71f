"""A folder with components and a config of them, for real gateways."""

from pathlib import Path
from typing import Any

from tests.serve.gateway import Entry, written

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
