"""Bad input over stdio: each message gets the right answer, and the server continues."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.running import FEATURES, StdioServer, initialize_params, modern_meta

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bad-input-stdio")]

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


@pytest.fixture(scope="module")
def running() -> Iterator[StdioServer]:
    with StdioServer(FEATURES) as server:
        server.initialize()
        yield server


@pytest.fixture
def server(running: StdioServer) -> Iterator[StdioServer]:
    """One server for all: whatever a test sends it, the next good request is answered."""
    running.received_before()
    yield running
    assert running.ask("ping")["result"] == {}
    assert running.received_before() == []
    assert running.oracle.problems == []
    assert "Traceback" not in running.stderr()


def refusal(server: StdioServer, line: bytes) -> tuple[int, Any]:
    """Code and id of the error that answers a line."""
    server.write(line + b"\n")
    answer = server.receive()
    return answer["error"]["code"], answer.get("id")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"nonsense",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
        b"{'jsonrpc':'2.0'}",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"\\x"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"pi\xffng"}',
        b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
        b"\xff\xfe{\x00}\x00",
        b"\x00",
    ],
)
def test_broken_json_is_a_parse_error(server: StdioServer, line: bytes) -> None:
    assert refusal(server, line) == (PARSE_ERROR, None)


@pytest.mark.parametrize(
    "line",
    [
        *(b"1", b'"ping"', b"null", b"true", b"1.5", b"{}"),
        b'{"id":1,"method":"ping"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":2.0,"id":1,"method":"ping"}',
        b'{"jsonrpc":null,"id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"method":null}',
        b'{"jsonrpc":"2.0","id":1,"method":""}',
    ],
)
def test_what_is_no_request_is_an_invalid_request(server: StdioServer, line: bytes) -> None:
    code, id = refusal(server, line)
    assert code == INVALID_REQUEST
    assert id == (1 if b'"id":1' in line else None)


@pytest.mark.parametrize("id", [b"null", b"1.5", b"true", b"[]", b"{}", b"1e3", b"[1]"])
def test_an_id_that_is_none_is_an_invalid_request(server: StdioServer, id: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":' + id + b',"method":"ping"}'
    assert refusal(server, line) == (INVALID_REQUEST, None)


@pytest.mark.parametrize("batch", [b"[]", b"[1]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]'])
def test_a_batch_is_refused_where_none_is_allowed(server: StdioServer, batch: bytes) -> None:
    assert refusal(server, batch) == (INVALID_REQUEST, None)


def test_a_request_nested_too_deeply_is_refused_by_its_id(server: StdioServer) -> None:
    deep = b"[" * 200 + b"]" * 200
    line = b'{"jsonrpc":"2.0","id":"d","method":"ping","params":{"a":' + deep + b"}}"
    assert refusal(server, line) == (INVALID_REQUEST, "d")


def test_absurd_nesting_is_refused(server: StdioServer) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        deep = opening * 100_000 + b"1" + closing * 100_000
        params = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + deep + b"}}"
        assert refusal(server, deep) == (INVALID_REQUEST, None)
        assert refusal(server, params) == (INVALID_REQUEST, 1)
        assert refusal(server, opening * 100_000)[0] in (PARSE_ERROR, INVALID_REQUEST)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", "[]"),
        ("tools/list", '"text"'),
        ("tools/list", '{"cursor":7}'),
        ("tools/list", '{"cursor":"nobody gave this out"}'),
        ("tools/list", '{"_meta":7}'),
        ("tools/call", "{}"),
        ("tools/call", '{"name":7}'),
        ("tools/call", '{"name":null}'),
        ("tools/call", '{"name":"text","arguments":[]}'),
        ("tools/call", '{"name":"text","arguments":"none"}'),
        ("tools/call", '{"name":"nobody"}'),
        ("resources/read", "{}"),
        ("resources/read", '{"uri":["note://one"]}'),
        ("prompts/get", '{"name":"greet","arguments":{"name":7}}'),
        ("prompts/get", '{"name":"greet","arguments":"Ada"}'),
        ("completion/complete", '{"ref":{"type":"ref/prompt","name":"greet"}}'),
        ("completion/complete", '{"ref":"greet","argument":{"name":"tone","value":""}}'),
        ("logging/setLevel", '{"level":"loud"}'),
        ("logging/setLevel", '{"level":7}'),
        ("resources/subscribe", "{}"),
        ("resources/subscribe", '{"uri":7}'),
    ],
)
def test_wrong_params_are_invalid_params(server: StdioServer, method: str, params: str) -> None:
    line = f'{{"jsonrpc":"2.0","id":"p","method":"{method}","params":{params}}}'
    assert refusal(server, line.encode()) == (INVALID_PARAMS, "p")


def test_a_line_over_the_limit_is_refused(server: StdioServer) -> None:
    limit = 4 * 1024 * 1024
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": "long", "method": "tools/call"}
    for size in (limit + 1, 3 * limit):
        message["params"] = {"name": "echo", "arguments": {"value": "x" * size}}
        code, id = refusal(server, json.dumps(message).encode())
        assert code == INVALID_REQUEST
        assert id in (None, "long")
    message["params"]["arguments"]["value"] = "x" * (limit - 1000)
    server.send(message)
    answer = server.answer_to("long")
    assert answer["result"]["structuredContent"] == message["params"]["arguments"]


def test_an_id_already_in_flight_is_refused_and_free_again_afterwards(server: StdioServer) -> None:
    arguments = {"token": "flight"}
    params = {"name": "was_cancelled", "arguments": arguments}
    call = {"jsonrpc": "2.0", "id": "f", "method": "tools/call", "params": params}
    server.send(call)
    # The same id in another spelling is the same id.
    again = json.dumps(call).encode().replace(b'"f"', b'"\\u0066"')
    code, id = refusal(server, again)
    assert (code, id) == (INVALID_REQUEST, "f")
    params = {"name": "wait_forever", "arguments": arguments, "_meta": {"progressToken": "t"}}
    waiting = server.start("tools/call", params)
    assert server.receive()["method"] == "notifications/progress"
    ends = {"requestId": waiting}
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": ends})
    assert "result" in server.answer_to("f")
    server.send({"jsonrpc": "2.0", "id": "f", "method": "ping"})
    assert server.answer_to("f")["result"] == {}


@pytest.mark.parametrize(
    "notice",
    [
        {"method": "no/such/notification"},
        {"method": "notifications/cancelled"},
        {"method": "notifications/cancelled", "params": {"requestId": "nobody"}},
        {"method": "notifications/cancelled", "params": {"requestId": {"a": 1}}},
        {"method": "notifications/cancelled", "params": []},
        {"method": "notifications/progress", "params": {"progressToken": 1, "progress": "much"}},
        {"method": "tools/call", "params": {"name": "text"}},
        {"method": "tools/list", "params": {"cursor": 7}},
        {"id": "portico-1", "result": {"nobody": "asked"}},
        {"id": "nobody", "error": {"code": "x"}},
        {"id": 7, "result": None},
    ],
)
def test_what_wants_no_answer_gets_none(server: StdioServer, notice: dict[str, Any]) -> None:
    server.send({"jsonrpc": "2.0", **notice})
    assert server.ask("ping")["result"] == {}
    assert server.received_before() == []


def test_a_second_handshake_is_refused(server: StdioServer) -> None:
    answer = server.ask("initialize", initialize_params("2025-06-18"))
    assert answer["error"]["code"] == INVALID_REQUEST


def test_an_unknown_version_in_the_handshake_is_answered_with_ours() -> None:
    for asked in ("1999-01-01", "2026-07-28", ""):
        with StdioServer(FEATURES) as server:
            assert server.initialize(asked)["result"]["protocolVersion"] == "2025-11-25"
            assert server.oracle.problems == []


def test_an_unsupported_modern_version_is_refused_with_the_list(server: StdioServer) -> None:
    for stated in ("2099-01-01", "2025-11-25", ""):
        answer = server.ask("tools/list", {"_meta": modern_meta(stated)})
        assert answer["error"]["code"] == -32022
        assert answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": stated}


def test_modern_requests_without_their_metadata_are_refused(server: StdioServer) -> None:
    for key in ("protocolVersion", "clientCapabilities"):
        meta = modern_meta()
        del meta[f"io.modelcontextprotocol/{key}"]
        answer = server.ask("server/discover", {"_meta": meta})
        assert answer["error"]["code"] == INVALID_PARAMS
    assert server.ask("subscriptions/listen", {"_meta": modern_meta()})["error"]["code"] == (
        INVALID_PARAMS
    )


def test_nothing_but_ping_comes_before_the_handshake() -> None:
    with StdioServer(FEATURES) as server:
        assert server.ask("tools/list")["error"]["code"] == INVALID_REQUEST
        assert server.ask("ping")["result"] == {}
        assert "result" in server.initialize()
        assert "result" in server.ask("tools/list")
        assert server.oracle.problems == []


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_without_a_readable_id_the_answer_has_null_or_none_by_version(version: str) -> None:
    with StdioServer(FEATURES) as server:
        server.initialize(version)
        server.write(b"{\n")
        answer = server.receive()
        assert answer["error"]["code"] == PARSE_ERROR
        assert ("id" in answer) == (version < "2025-11-25")
        assert answer.get("id") is None
        assert server.oracle.problems == []


def test_a_batch_is_answered_as_one_where_the_version_has_batches() -> None:
    with StdioServer(FEATURES) as server:
        server.initialize("2025-03-26")
        server.write(
            b'[{"jsonrpc":"2.0","id":"a","method":"ping"},1,{"jsonrpc":"2.0","id":"b",'
            b'"method":"tools/call","params":{"name":"text"}},'
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}]\n'
        )
        answers: Any = server.receive()
        assert len(answers) == 3
        assert {answer["id"] for answer in answers} == {"a", "b", None}
        assert refusal(server, b"[]") == (INVALID_REQUEST, None)
        server.write(b'[{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}]\n')
        refused: Any = server.receive()
        assert [answer["id"] for answer in refused] == ["i"]
        assert server.ask("ping")["result"] == {}
        assert server.oracle.problems == []
