"""The limit on nesting gives the same result as a scan of every byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.protocol.depth import CHUNK, MAX_NESTING, is_too_deep


def _walk(data: bytes) -> bool:
    """The same, one byte after the other."""
    depth, in_string, escaped = 0, False, False
    for byte in data:
        if escaped:
            escaped = False
        elif in_string:
            escaped = byte == ord("\\")
            in_string = byte != ord('"')
        elif byte in b"[{":
            depth += 1
            if depth > MAX_NESTING:
                return True
        elif byte in b"]}":
            depth = max(0, depth - 1)
        else:
            in_string = byte == ord('"')
    return False


_TEXT = st.text(alphabet='[]{}"\\nu\u20ac', max_size=6).map(json.dumps)
_CLIMB = st.tuples(st.integers(0, 150), st.sampled_from("[{")).map(lambda pair: pair[0] * pair[1])
_FALL = st.tuples(st.integers(0, 150), st.sampled_from("]}")).map(lambda pair: pair[0] * pair[1])
_TOKENS = st.lists(_TEXT | _CLIMB | _FALL | st.sampled_from(["[]", ",", "1", "[]" * 200]))


@given(_TOKENS)
def test_depth_is_what_a_walk_over_the_bytes_finds(tokens: list[str]) -> None:
    data = "".join(tokens).encode()
    assert is_too_deep(data) is _walk(data)


@given(_TOKENS, st.integers(-8, 8))
def test_depth_is_the_same_wherever_a_long_message_is_cut(tokens: list[str], by: int) -> None:
    data = json.dumps("[" * (CHUNK + by)).encode() + "".join(tokens).encode()
    assert is_too_deep(data) is _walk(data)


@pytest.mark.parametrize("around", [b"%s", b'"\\\\"%s', b'"\\\\\\""%s', b'"]]]]"%s'])
def test_the_limit_is_exact(around: bytes) -> None:
    for depth in range(MAX_NESTING - 9, MAX_NESTING + 9):
        assert is_too_deep(around % (b"[" * depth)) is (depth > MAX_NESTING)
