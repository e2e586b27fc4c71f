"""A line read again means what it meant the first time, but for its id."""

from hypothesis import given
from hypothesis import strategies as st

from portico.model.message import Request
from portico.model.version import Version
from portico.protocol.inbound import Again, read

_VERSION = Version.V2025_06_18
_IDS = st.one_of(
    st.integers(-5, 10**20).map(str),
    st.sampled_from(['"a"', "007", "1.0", "1e3", "null", "true", "[1]", "", " 7", "7 "]),
)
_LINES = st.sampled_from(
    [
        '{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":{}}',
        '{"jsonrpc":"2.0","id":%s,"method":"tools/list"}',
        '{"method":"tools/list","jsonrpc":"2.0","id":%s}',
        '{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":{"cursor":"x"}}',
        '{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":{"id":4,"_meta":{"id":5}}}',
        '{"params":{"id":%s,"a":1},"id":3,"jsonrpc":"2.0","method":"tools/list"}',
        '{"id":%s,"jsonrpc":"2.0","method":"tools/list","\\u0069d":8}',
        '{"jsonrpc":"2.0","x":"\\"id\\":%s,","id":9,"method":"tools/list"}',
        '{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"a"}}',
        '{"jsonrpc":"2.0","id":%s,"method":"ping","params":{}}',
        '[{"jsonrpc":"2.0","id":%s,"method":"tools/list"}]',
        '{"jsonrpc":"2.0","id":%s,"method":"tools/list"',
    ]
)


@given(st.lists(st.tuples(_LINES, _IDS), max_size=40))
def test_it_reads_as_the_plain_reader_does(said: list[tuple[str, str]]) -> None:
    again = Again()
    for line, id in said:
        data = (line % id).encode()
        assert again.read(data, _VERSION) == read(data, _VERSION)


def test_what_one_reader_changes_does_not_reach_the_next() -> None:
    again = Again()
    for id in (b"1", b"2", b"3"):
        line = b'{"jsonrpc":"2.0","id":%s,"method":"resources/list"}' % id
        request = again.read(line, _VERSION)
        assert isinstance(request, Request)
        assert (request.id, request.uri) == (id, "")
        request.uri = "changed"


def test_a_line_means_another_thing_in_another_version() -> None:
    again = Again()
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    for version in (Version.V2024_11_05, Version.V2025_11_25, None):
        assert again.read(line, version) == read(line, version)
