"""Which keys of params are refused because a server could read them as others."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.model.errors import InvalidParams
from portico.core.protocol.codec import encode
from portico.core.protocol.exact import exact, has_equal_keys, without_duplicates


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


SPELLED = [
    b'{ "name" : "a" ,"arguments":{"x":1,"x": 2}, "_meta" :{} }',
    b'{"n\\u0061me":"a","x \\" y":[ 1,\t"}"]}',
    b'{"ref": {"type":"ref/prompt" , "name":"a","x":{"k":1,"k":1}},"argument":{ }}',
    b'{"a":1,"b":12,"c":1}\r\n',
]


@pytest.mark.parametrize("params", SPELLED)
def test_params_without_a_key_twice_are_left_as_they_were_written(params: bytes) -> None:
    assert without_duplicates(params, exact(params)) is params


def test_params_without_spaces_are_compared_and_not_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("portico.core.protocol.exact.starts_of")
    params = b'{"name":"a","arguments":{"x": 1},"_meta":{}}'

    assert without_duplicates(params, exact(params)) is params


TWICE = [
    (b'{"name":"a","name":"a"}', b'{"name":"a"}'),
    (b'{"a":1,"name":2,"a":1}', b'{"a":1,"name":2}'),
    (b'{"a":1,"a":12}', b'{"a":12}'),
    (b'{"a":12,"a":1}', b'{"a":1}'),
    (b'{"a":1 , "\\u0061":1}', b'{"a":1}'),
    (b'{"ref": {"uri":"a","uri":"a"}}', b'{"ref":{"uri":"a"}}'),
    (b'{"a":"\\"b\\":1}","b":1,"b":1}', b'{"a":"\\"b\\":1}","b":1}'),
]


@pytest.mark.parametrize(("params", "kept"), TWICE)
def test_params_with_a_key_twice_are_written_anew(params: bytes, kept: bytes) -> None:
    assert without_duplicates(params, exact(params)) == kept


JSON = st.recursive(
    st.integers(0, 12) | st.text('a"\\{},: ', max_size=3),
    lambda of: st.lists(of, max_size=2) | st.dictionaries(st.sampled_from("ab"), of, max_size=2),
    max_leaves=4,
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", '"', "\\"]), JSON), max_size=4))
def test_what_is_left_as_it_was_has_every_key_once(pairs: list[tuple[str, Any]]) -> None:
    fields = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in pairs)
    params = f"{{{' , '.join(fields)} }}".encode()

    left = without_duplicates(params, exact(params))

    assert json.loads(left) == dict(pairs)
    if pairs:
        assert (left is params) == (len(dict(pairs)) == len(pairs))


def test_a_reference_is_looked_into() -> None:
    assert read(b'{"ref":{"name":"a","name":"b"}}') == {"ref": {"name": "b"}}
    with pytest.raises(InvalidParams, match=r"params.ref: 'Uri' could be read as 'uri'"):
        exact(b'{"ref":{"uri":"a","Uri":"b"}}')


@pytest.mark.parametrize("params", [b"", b"{}", b'{"ref":"x"}', b'{"ref":null}'])
def test_params_that_name_nothing_are_fine(params: bytes) -> None:
    assert read(params) == json.loads(params or b"{}")


@pytest.mark.parametrize(
    ("raw", "has"),
    [
        (b'{"a":1,"b":{"a":2},"c":[{"a":3},{"a":3}]}', False),
        (b'{"a":1,"a":1}', True),
        (rb'{"a":1,"\u0061":1}', True),
        (b'[[{"x":{"y":0,"y":0}}]]', True),
        (b'{"n":' + b"9" * 10_000 + b',"m":1e999,"A":0,"a":0}', False),
    ],
)
def test_equal_keys_are_found_at_any_depth(raw: bytes, has: bool) -> None:
    assert has_equal_keys(raw) is has
