"""Lines out of a stream: whatever the chunks, the same lines; too long ones are passed over."""

from hypothesis import given
from hypothesis import strategies as st

from portico.core.protocol.line_reader import LineReader


@given(lines=st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"."))), data=st.data())
def test_lines_come_out_whatever_the_chunks_were(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    reader = LineReader(limit=100)
    out: list[bytes | None] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        out += reader.feed(stream[:size])
        stream = stream[size:]
    assert out == lines


@given(size=st.integers(11, 200), chunk=st.integers(1, 50))
def test_a_line_over_the_limit_is_reported_once_and_the_next_one_is_read(
    size: int, chunk: int
) -> None:
    stream = b"x" * size + b"\nok\n"
    reader = LineReader(limit=10)
    chunks = [stream[at : at + chunk] for at in range(0, len(stream), chunk)]
    out = [line for piece in chunks for line in reader.feed(piece)]
    assert out == [None, b"ok"]


def test_an_endless_line_is_not_kept() -> None:
    reader = LineReader(limit=1000)
    for _ in range(1000):
        assert reader.feed(b"x" * 1000) == []
    assert len(reader.partial) <= 1000
