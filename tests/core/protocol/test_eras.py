"""Results of legacy servers for modern clients: joining bytes and decoding give the same."""

import json

import pytest

from portico.core.protocol import eras
from portico.core.protocol.eras import legacy_params, modern_result

INFO = b'{"name":"it","version":"1"}'
RESULTS = [
    b"{}",
    b'{"content":[]}',
    b'{"content":[{"type":"text","text":"a \\" _meta"}],"isError":false}',
    b'{ "content" : [] }',
    b'{"content":[],"_meta":{"a":1}}',
    b'{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"own"}}}',
    b'{"resultType":"complete","content":[]}',
    b'{"result\\u0054ype":"input_required","content":[]}',
    b'{"\\u005fmeta":{"a":1}}',
    b"[]",
    b'"text"',
]


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("method", ["tools/call", "resources/read"])
@pytest.mark.parametrize("info", [INFO, b""])
def test_a_result_is_the_same_by_either_way(
    result: bytes, method: str, info: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = modern_result(method, result, info)
    monkeypatch.setattr(eras, "MAX_JOINED", -1)
    long = modern_result(method, result, info)
    assert json.loads(short, object_pairs_hook=list) == json.loads(long, object_pairs_hook=list)


def test_a_legacy_server_hears_nothing_of_the_modern_era() -> None:
    meta = b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","own":1,"progressToken":7}'
    params = b'{"_meta":%b,"name":"x","requestState":"s"}' % meta
    for _ in range(2):
        assert json.loads(legacy_params(params, b"")) == {"_meta": {"own": 1}, "name": "x"}
        told = json.loads(legacy_params(params, b"9"))
        assert told == {"_meta": {"own": 1, "progressToken": 9}, "name": "x"}
    bare = b'{"_meta":{"io.modelcontextprotocol/clientInfo":{}},"name":"x"}'
    assert json.loads(legacy_params(bare, b"")) == {"name": "x"}
