"""The page of clients: each has its command, its files, and the entry that Portico writes."""

import json
import tomllib
from typing import Any

import pytest

from portico.core.config.client_table import CLIENTS, ClientFormat, System
from tests.docs.pages import blocks, prose, section

PAGE = "docs/use/clients.md"
HOMES = {
    "linux": System("linux", "~", {"XDG_CONFIG_HOME": "~/.config"}),
    "macos": System("macos", "~"),
    "windows": System("windows", "%USERPROFILE%", {"APPDATA": "%APPDATA%"}),
}


def wrapped(row: ClientFormat) -> dict[str, Any]:
    """The whole file of a client that has no other server."""
    assert row.write is not None
    found: dict[str, Any] = row.write(["portico", "serve", "--client", row.name])
    for key in reversed((*row.section, "portico")):
        found = {str(key): found}
    return found


def test_every_client_is_on_the_page_in_order() -> None:
    titles = [line[3:] for line in prose(PAGE).splitlines() if line.startswith("## ")]
    assert titles == [row.title for row in CLIENTS.values()]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_entry_by_hand_is_the_one_that_is_written(client: str) -> None:
    row = CLIENTS[client]
    read = tomllib.loads if row.files[0].endswith(".toml") else json.loads
    titles = [one.title for one in CLIENTS.values()]
    shown = [block for block in blocks(PAGE) if block.language in ("json", "toml")]
    assert read(shown[titles.index(row.title)].text) == wrapped(row)
    assert f"portico install {client}\n" in section(PAGE, row.title)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_files_of_each_system_are_those_of_the_table(client: str) -> None:
    row = CLIENTS[client]
    paths = {name: row.file(system) for name, system in HOMES.items()}
    paths["windows"] = paths["windows"].replace("/", "\\")
    cells = " | ".join(f"`{path}`" for path in paths.values())
    assert f"| `{client}` | {cells} |" in prose(PAGE)
