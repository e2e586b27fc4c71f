"""Events out of a stream: whatever the chunks and line ends, the same events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.upstream.wires.event_reader import EventReader, ServerSentEvent, TooLong

STREAM = (
    b": a comment\n\n"
    b"id: 1\ndata:\n\n"
    b'event: message\nid: 2\ndata: {"a":1}\n\n'
    b"retry: 250\n\n"
    b"data: one\ndata:two\nunknown: field\n\n"
    b"event: endpoint\ndata: /messages?session=1\n\n"
)
EVENTS = [
    ServerSentEvent(b'{"a":1}', "message", "2"),
    ServerSentEvent(b"one\ntwo", "message", "2"),
    ServerSentEvent(b"/messages?session=1", "endpoint", "2"),
]


@given(end=st.sampled_from([b"\n", b"\r\n", b"\r"]), data=st.data())
def test_events_come_out_whatever_the_chunks_were(end: bytes, data: st.DataObject) -> None:
    stream = STREAM.replace(b"\n", end) + b": the end of the last line is then certain\n"
    reader = EventReader(1000)
    events: list[ServerSentEvent] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        events += reader.feed(stream[:size])
        stream = stream[size:]
    assert events == EVENTS
    assert reader.retry_ms == 250
    assert reader.last_id == "2"


def test_an_event_that_is_not_finished_is_none() -> None:
    assert EventReader(1000).feed(b"data: half\n") == []


@pytest.mark.parametrize("chunk", [b"data: xxxxxxxxx\n", b"data: no newline", b"data\n"])
def test_an_event_over_the_limit_is_refused(chunk: bytes) -> None:
    reader = EventReader(100)

    def feed_for_ever() -> None:
        while True:
            reader.feed(chunk)

    with pytest.raises(TooLong, match="longer than 100 bytes"):
        feed_for_ever()


def test_a_long_life_of_comments_is_no_long_event() -> None:
    reader = EventReader(100)
    for _ in range(1000):
        assert reader.feed(b": keep-alive\n\n") == []


def test_an_absurd_retry_is_ignored() -> None:
    reader = EventReader(10_000)
    reader.feed(b"retry: " + b"9" * 5000 + b"\nretry: soon\n\n")
    assert reader.retry_ms is None
