"""The beginning and the end of a text are kept."""

from hypothesis import given
from hypothesis import strategies as st

from portico.agents.turns.bounded_text import BoundedText


@given(st.lists(st.text(max_size=30), max_size=60), st.integers(0, 100))
def test_a_text_is_kept_whole_or_by_both_ends(pieces: list[str], limit: int) -> None:
    kept = BoundedText(limit)
    for piece in pieces:
        kept.add(piece)
    whole = "".join(pieces)
    assert len(kept) == len(whole)
    head, tail = limit - limit // 2, limit // 2
    if len(whole) <= limit:
        assert kept.value() == whole
    else:
        note = f"\n\n[... {len(whole) - limit} characters were cut here ...]\n\n"
        assert kept.value() == whole[:head] + note + whole[len(whole) - tail :]


def test_its_value_can_be_read_more_than_once() -> None:
    kept = BoundedText(10)
    kept.add("0123456789")
    kept.add("abc")
    assert kept.value() == kept.value()
    kept.add("d")
    assert kept.value().endswith("9abcd")
