"""Whatever is in a file: reading gives a config or an explanation, and editing no surprise."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.core.config.agents_schema import AgentEntry, AgentsDefaults, RoutingRule
from portico.core.config.read import read
from portico.core.config.schema import SERVER, TOP, Gateway, Rerank, Search
from portico.core.config.values import readers
from portico.core.documents.edit import add_server, remove_server, set_enabled
from portico.core.documents.problems import MAX_LISTED, ConfigError
from tests.core.config.test_read import WHOLE
from tests.core.documents.test_edit import JSON, TOML

in_one_folder = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_kinds = (Gateway, Search, Rerank, AgentEntry, AgentsDefaults, RoutingRule)
_tables = [key for table in _kinds for key in readers(table)]
_keys = st.sampled_from([*SERVER, *_tables, *TOP, "mcpServers", "allow", "a b"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


def attempt(path: Path) -> None:
    """Read it; any other end than these two fails the test."""
    try:
        read(path, environ={})
    except ConfigError as error:
        said = error
    else:
        return
    assert 0 < len(said.problems) <= MAX_LISTED + 1
    assert all(line.startswith(str(path)) for line in said.problems)


@in_one_folder
@given(
    data=st.dictionaries(_keys, _values, max_size=5),
    top=st.sampled_from(["mcpServers", "servers"]),
)
def test_any_values_in_json_are_read_or_explained(
    data: dict[str, Any], top: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"groups": data, **data, top: {"x": data, "y": {"tools": data}}}))
    attempt(path)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """A text with a few pieces cut out, doubled or put elsewhere."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        piece = text[start : start + draw(st.integers(0, 40))]
        to = draw(st.integers(0, len(text)))
        if draw(st.booleans()):
            text = text[:start] + text[start + len(piece) :]
        text = (
            text[:to] + draw(st.sampled_from([piece, "", '"', "'''", "]", "}", "\x00"])) + text[to:]
        )
    return text


@pytest.mark.parametrize("text", [WHOLE, TOML, JSON], ids=["whole", "toml", "json"])
@in_one_folder
@given(data=st.data())
def test_a_damaged_file_is_read_or_explained_and_edited_exactly_or_not_at_all(
    text: str, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "config"
    was = data.draw(damaged(text))
    path.write_bytes(was.encode())
    attempt(path)
    for change in (
        lambda: add_server(str(path), "new", {"command": "x", "env": {"A": "é\n"}}),
        lambda: set_enabled(str(path), "github", False),
        lambda: remove_server(str(path), "files"),
        lambda: remove_server(str(path), "linear"),
    ):
        before = path.read_bytes()
        try:
            change()
        except ConfigError:
            assert path.read_bytes() == before
        else:
            attempt(path)


def test_the_texts_that_are_damaged_are_sound() -> None:
    assert len(tomllib.loads(TOML)["servers"]) == 2
    assert len(tomllib.loads(WHOLE)["servers"]) == 3


@pytest.mark.parametrize(
    "text",
    [
        "{" + "/*" * 1_000_000,
        '{"' + '\\"' * 1_000_000,
        "{" + ",/*" * 700_000,
        "{" + '"a":1,' * 600_000,
        '{"mcpServers": {' + ",".join(f'"{n} ": 5' for n in range(10_000)) + "}}",
        "[servers]\n" + "".join(f"a{n} = 5\n" for n in range(10_000)),
        "a = [" + "[]," * 100_000,
        "# " + "x" * 2_000_000 + "\n[servers.a]\ncommand = 5\n",
    ],
    ids=range(8),
)
def test_huge_nonsense_is_explained_soon(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read(path)
