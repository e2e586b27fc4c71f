"""Which keys of params are refused because a server could read them as others."""

import json
from typing import Any

import pytest

from portico.model.errors import InvalidParams
from portico.protocol.codec import encode
from portico.protocol.exact import exact


def read(params: bytes) -> Any:
    return json.loads(encode(exact(params)))


@pytest.mark.parametrize(
    "key",
    [
        *("Name", "NAME", "na_me", "na-me", "URI", "ur\u0131", "ur\u0130", "argument\u017f"),
        *("_META", "ta\u017fk", "tas\u212a", "inputresponses", "request_state", "Ref"),
    ],
)
def test_a_key_that_folds_to_a_known_one_is_refused(key: str) -> None:
    with pytest.raises(InvalidParams, match="could be read as"):
        exact(json.dumps({"name": "a", key: "b"}).encode())
    with pytest.raises(InvalidParams, match="could be read as"):
        exact(json.dumps({"name": "a", key: "b"}, ensure_ascii=False).encode())


@pytest.mark.parametrize("key", ["names", "meta", "n", "", "x-name-y", "Title", "\u00fcri"])
def test_a_key_of_its_own_is_kept(key: str) -> None:
    assert read(json.dumps({"name": "a", key: [1]}).encode()) == {"name": "a", key: [1]}


def test_the_last_of_two_equal_keys_is_kept_alone() -> None:
    raw = encode(exact(rb'{"name":"a","n\u0061me":"b","arguments":{"x":1,"X":2}}'))

    assert raw.count(b"name") == 1
    assert read(raw) == {"name": "b", "arguments": {"x": 1, "X": 2}}


def test_a_reference_is_looked_into() -> None:
    assert read(b'{"ref":{"name":"a","name":"b"}}') == {"ref": {"name": "b"}}
    with pytest.raises(InvalidParams, match=r"params.ref: 'Uri' could be read as 'uri'"):
        exact(b'{"ref":{"uri":"a","Uri":"b"}}')


@pytest.mark.parametrize("params", [b"", b"{}", b'{"ref":"x"}', b'{"ref":null}'])
def test_params_that_name_nothing_are_fine(params: bytes) -> None:
    assert read(params) == json.loads(params or b"{}")
