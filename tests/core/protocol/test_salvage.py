"""The id of a request that cannot be read is found where it is certain, and never guessed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.protocol.salvage import id_at_edge

LONG = "y" * 2000
ids = st.integers() | st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
params = st.dictionaries(st.sampled_from(["id", "a", "method", "_meta"]), values)


@given(ids, params, st.permutations(["jsonrpc", "id", "method", "params"]))
def test_what_is_found_is_the_id(id: int | str, given: object, order: list[str]) -> None:
    fields = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": given}
    whole = json.dumps({key: fields[key] for key in order}).encode()
    found = id_at_edge(whole)
    assert found == b"" or json.loads(found) == id
    if len(whole) < 256:
        assert found or "\\" in whole.decode()


@given(params, st.permutations(["jsonrpc", "method", "params"]))
def test_a_notification_has_none(given: object, order: list[str]) -> None:
    fields = {"jsonrpc": "2.0", "method": "notifications/x", "params": given}
    assert id_at_edge(json.dumps({key: fields[key] for key in order}).encode()) == b""


@pytest.mark.parametrize("key", ["result", "error"])
@pytest.mark.parametrize("first", [True, False])
def test_an_answer_is_not_answered(key: str, first: bool) -> None:
    body, rest = {key: {"x": LONG}}, {"jsonrpc": "2.0", "id": 1}
    whole = json.dumps({**body, **rest} if first else {**rest, **body})
    assert id_at_edge(whole.encode()) == b""


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"[]",
        b'{"params":{"id":1}}',
        b'{"params":{"x":"' + b"y" * 500 + b'","id":1}}',
        b'{"a":1,"id":1,"params":{}}' + b" " * 300 + b"{",
        b'{"jsonrpc":"2.0","id":null,"method":"x"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"x"}',
    ],
)
def test_what_is_not_certain_is_left(message: bytes) -> None:
    assert id_at_edge(message) == b""
