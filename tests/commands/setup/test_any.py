"""Whatever a client's file contains: it is read or named, and only Portico's entry changes."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st

from portico.commands.setup.installer import own_changes, removals
from portico.commands.setup.own_entry import own_entries
from portico.commands.setup.source import read_source
from portico.core.config.client_table import CLIENTS
from portico.core.documents.document import Document, parse
from portico.core.documents.edit import EntryChange, changed_entries
from portico.core.documents.problems import ConfigError

T = TypeVar("T")
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("portico"),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(), one, max_size=3),
    max_leaves=6,
)
KEYS = ("command", "args", "env", "url", "type", "headers", "cwd", "timeout", "tools", "disabled")
ENTRY = st.dictionaries(st.sampled_from(KEYS), ANY | st.just("serve"), max_size=5) | ANY
FILE = st.fixed_dictionaries(
    {},
    optional={
        "mcpServers": st.dictionaries(st.text(max_size=8), ENTRY, max_size=4) | ANY,
        "projects": st.dictionaries(
            st.just("/"), st.fixed_dictionaries({"mcpServers": ENTRY}) | ANY
        ),
        "mcp": ANY,
        "theme": ANY,
    },
)


def attempted(act: Callable[[], T]) -> T | str:
    """The result, or the message of a refusal; any other failure is a bug."""
    try:
        return act()
    except ConfigError as error:
        return str(error)


@given(FILE, st.sampled_from([None, 1, "\t"]))
def test_any_clients_file_is_read_and_changed_only_where_it_is_meant(
    data: dict[str, Any], indent: int | str | None
) -> None:
    row = CLIENTS["claude"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ".claude.json"
        path.write_text(json.dumps(data, indent=indent))
        source = attempted(lambda: read_source(str(path), row))
        if isinstance(source, str):
            assert str(path) in source
            return
        servers = [one for one in source.servers if not one.problem]
        entries = own_entries(row, ["portico"], ())

        def changes(document: Document) -> list[EntryChange]:
            gone = [*removals(document, servers)]
            return [*gone, *own_changes(document, row, entries, [one.at for one in servers])]

        new = attempted(lambda: changed_entries(str(path), path.read_bytes(), changes))
        if isinstance(new, str):
            assert str(path) in new
            return
    found = parse(str(path), new.decode()).data
    assert found["mcpServers"]["portico"]["args"] == ["serve", "--client", "claude"]
    moved = ("mcpServers", "projects")
    assert {key: found[key] for key in found if key not in moved} == {
        key: data[key] for key in data if key not in moved
    }
    again = changed_entries(str(path), new, lambda one: own_changes(one, row, entries))
    assert again == new
