"""Limits the nesting of JSON, in a few milliseconds per megabyte for any content.

Quotes and brackets are encoded four to a byte. Every state of the scan is a list of the next state
for each such byte, so that one `reduce` scans a whole chunk of a message in C.
"""

from functools import cache, reduce
from itertools import chain
from operator import getitem

MAX_NESTING = 128

_QUOTE, _OPEN, _CLOSE, _NOTHING = range(4)
_DIGITS = bytes.maketrans(b'"[{]}', b"01122")
_OTHERS = bytes(byte for byte in range(256) if byte not in b'"[{]}')
CHUNK = 64 * 1024

State = list["State"]


def is_too_deep(data: bytes) -> bool:
    """True if the nesting outside strings exceeds the limit; undefined for invalid JSON."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    state, too_deep = _states()
    for start in range(0, len(data), CHUNK):
        digits = data[start : start + CHUNK].translate(_DIGITS, _OTHERS)
        if not digits:
            continue
        digits += b"3" * (-len(digits) % 4)  # _NOTHING
        state = reduce(getitem, int(digits, 4).to_bytes(len(digits) // 4, "big"), state)
        if state is too_deep:
            return True
    return False


@cache
def _states() -> tuple[State, State]:
    """Return the first state and the final state, too deep, which is never left."""
    last = 2 * MAX_NESTING + 2
    once = [_after(state) for state in range(last)] + [(last,) * 4]
    twice = [tuple(chain.from_iterable(once[state] for state in row)) for row in once]
    states: list[State] = [[] for _ in range(last + 1)]
    for state, row in zip(states, twice, strict=True):
        state.extend(map(states.__getitem__, chain.from_iterable(twice[number] for number in row)))
    return states[0], states[last]


def _after(number: int) -> tuple[int, int, int, int]:
    """Return the next state for each symbol. A state is twice its depth, plus 1 in strings."""
    if number % 2:
        return number - 1, number, number, number
    return number + 1, number + 2, max(0, number - 2), number
