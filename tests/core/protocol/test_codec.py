"""Decoding of envelopes: valid JSON-RPC stays raw, and invalid messages get the right code."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.model.message import Request, Response
from portico.core.model.version import Version
from portico.core.protocol.codec import error_response, may_mention
from portico.core.protocol.depth import MAX_NESTING
from portico.core.protocol.inbound import (
    ClientAnswer,
    Malformed,
    RefusedMessage,
    read,
    read_message,
)

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
IDS = st.integers() | st.text()


@given(id=IDS, method=st.text(min_size=1), params=st.dictionaries(st.text(), JSON_VALUES))
def test_ids_and_params_travel_as_the_bytes_they_came_in(
    id: int | str, method: str, params: dict[str, Any]
) -> None:
    raw_id, raw_params = json.dumps(id), json.dumps(params)
    message = (
        f'{{"jsonrpc":"2.0","id":{raw_id},"method":{json.dumps(method)},"params":{raw_params}}}'
    )
    envelope = read_message(message.encode("utf-8", "surrogatepass"))
    assert not isinstance(envelope, list)
    assert (bytes(envelope.id), envelope.method) == (raw_id.encode(), method)
    assert bytes(envelope.params) == raw_params.encode()


@given(id=IDS, result=st.dictionaries(st.text(), JSON_VALUES))
def test_a_response_is_its_parts_joined(id: int | str, result: dict[str, Any]) -> None:
    raw = json.dumps(result).encode()
    response = Response(id=json.dumps(id).encode(), result=raw)
    assert any(part is raw for part in response.parts)
    assert json.loads(response.encode()) == {"jsonrpc": "2.0", "id": id, "result": result}


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_but_malformed(data: bytes) -> None:
    inbound = read(data, Version.V2025_03_26)
    assert isinstance(inbound, Request | ClientAnswer | RefusedMessage | list)


@given(JSON_VALUES)
def test_any_json_that_is_no_message_is_an_invalid_request(value: Any) -> None:
    if isinstance(value, dict | list):
        return
    inbound = read(json.dumps(value).encode(), None)
    assert isinstance(inbound, RefusedMessage)
    assert inbound.response.code == -32600


@pytest.mark.parametrize(
    ("text", "code", "id"),
    [
        (b"", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}}', -32700, None),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\\uD800"}}', -32700, 7),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\\ud800",}}', -32700, None),
        (b'[{"a":"\\ud800"}]', -32700, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600, 1),
        (b'{"id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":7,"method":3}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":"a"}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":5}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":{}}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":[]}}', -32602, 1),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
    ],
)
def test_a_bad_message_gets_its_proper_answer(text: bytes, code: int, id: object) -> None:
    inbound = read(text, Version.V2025_11_25)
    assert isinstance(inbound, RefusedMessage)
    answer = inbound.response.decode()
    assert answer["error"]["code"] == code
    assert answer.get("id") == id


def test_nesting_beyond_the_limit_is_refused_and_brackets_in_strings_do_not_count() -> None:
    deep = b"[" * (MAX_NESTING + 1) + b"]" * (MAX_NESTING + 1)
    with pytest.raises(Malformed, match="nested"):
        read_message(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + deep + b"}}")
    flat = b'"' + b"[" * 1000 + b'\\"' + b"{" * 1000 + b'"'
    assert read_message(b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + flat + b"}}")


@given(depth=st.integers(100, 160), text=st.text(alphabet='[]{}"\\ab'))
def test_depth_is_what_a_parser_would_count(depth: int, text: str) -> None:
    nested = json.dumps(text).encode()
    for level in range(depth):
        nested = b"[" + nested + b",[]]" if level % 2 else b'{"a":' + nested + b"}"
    message = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + nested + b"}}"
    try:
        read_message(message)
        accepted = True
    except Malformed:
        accepted = False
    assert accepted is (depth + 2 <= MAX_NESTING)


@pytest.mark.parametrize("piece", [b"[]", b"[", b"{", b'"', b'\\"', b'"\\"', b"]", b'[{"a":[]}],'])
def test_four_megabytes_of_anything_are_refused_and_not_pondered(piece: bytes) -> None:
    data = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[' + piece * (
        4_000_000 // len(piece)
    )
    with pytest.raises(Malformed):
        read_message(data)


def test_an_error_without_an_id_is_null_up_to_2025_06_18_and_has_none_after() -> None:
    old = error_response(b"", -32700, "no", version=Version.V2025_06_18).decode()
    assert old["id"] is None
    assert "id" not in error_response(b"", -32700, "no", version=Version.V2025_11_25).decode()


def test_an_error_about_what_is_no_text_is_told_all_the_same() -> None:
    name = b"caf\xe9".decode(errors="surrogateescape")  # as Python reads the name of a file
    response = error_response(b"1", -32603, f"no {name}", {"server": name, "tried": [name, 2]})
    assert json.loads(response.encode())["error"] == {
        "code": -32603,
        "message": "no caf\\udce9",
        "data": {"server": "caf\\udce9", "tried": ["caf\\udce9", 2]},
    }


def test_a_batch_is_read_member_by_member_in_2025_03_26_only() -> None:
    batch = (
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},'
        b'{"jsonrpc":"2.0","id":2,"method":"initialize"},7,[]]'
    )
    members = read(batch, Version.V2025_03_26)
    assert isinstance(members, list)
    kinds = [type(member) for member in members]
    assert kinds == [Request, Request, RefusedMessage, RefusedMessage, RefusedMessage]
    assert isinstance(read(b"[]", Version.V2025_03_26), RefusedMessage)
    for version in (None, Version.V2024_11_05, Version.V2025_06_18, Version.V2025_11_25):
        assert isinstance(read(batch, version), RefusedMessage)


def test_a_clients_answer_is_told_from_a_request() -> None:
    answer = read(b'{"jsonrpc":"2.0","id":"portico-1","result":{"roots":[]}}', None)
    assert answer == ClientAnswer(b'"portico-1"', b'{"roots":[]}', b"")


def test_a_batch_has_its_limit() -> None:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert isinstance(read(b"[" + b",".join([ping] * 100) + b"]", Version.V2025_03_26), list)
    refused = read(b"[" + b",".join([ping] * 101) + b"]", Version.V2025_03_26)
    assert isinstance(refused, RefusedMessage)
    assert refused.response.code == -32600


def test_nesting_is_counted_alike_wherever_a_long_message_is_cut() -> None:
    """The data is scanned in chunks, and a string may cross from one chunk to the next."""
    deep = b"[" * MAX_NESTING + b"]" * MAX_NESTING
    for size in (*range(65500, 65560), 200_000):
        text = b'"' + b"[" * size + b'"'
        fine = b'{"jsonrpc":"2.0","id":1,"result":{"a":%s,"b":%s}}' % (text, b"[[]]")
        assert not isinstance(read_message(fine), list)
        with pytest.raises(Malformed, match="nested deeper"):
            read_message(b'{"jsonrpc":"2.0","id":1,"result":{"a":%s,"b":%s}}' % (text, deep))


@given(
    word=st.sampled_from(["task", "elicitation", "io.modelcontextprotocol/tasks"]),
    escaped=st.sets(st.integers(0, 40)),
    slash=st.booleans(),
)
def test_a_word_is_found_however_its_letters_are_written(
    word: str, escaped: set[int], slash: bool
) -> None:
    letters = [
        f"\\u{ord(letter):04x}"
        if place in escaped
        else "\\/"
        if letter == "/" and slash
        else letter
        for place, letter in enumerate(word)
    ]
    raw = f'{{"{"".join(letters)}":1}}'.encode()
    assert json.loads(raw) == {word: 1}
    assert may_mention(raw, word.encode())


def test_escapes_that_write_no_letters_do_not_count() -> None:
    assert not may_mention(rb'{"text":"two\nlines, a \"quote\" and a \\"}', b'"task"')
