"""What passes through `wrap`, or a server's own door, stays what it was: both sides are held
together by bytes."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rigs.recorder import recorded
from tests.rigs.running import bad, listening, recorder
from tests.rigs.wire import dumps, raw_member
from tests.serve.gateway import Gateway, written
from tests.serve.gateway import command as entry
from tests.support import running
from tests.support.messages import MODERN, PREFIX
from tests.support.pairs import pairs
from tests.support.soak import times
from tests.wrap.faults import Wrap, until
from tests.wrap.talk import Client, Pipes, web

pytestmark = [pytest.mark.faithful, pytest.mark.xdist_group("faithful")]

ODD = (
    rb'{ "z" :1,"a": [1 ,2,  {"\u00e9":"\ud83d\ude00 \/ ' + "é☃".encode() + rb'"}],"dup":1,"dup":2,'
    rb'"n":123456789012345678901234567890123456789,"f":1.0e+2,"e":1E400,"neg":-0.0,"":null,'
    rb'"t":"\t\u0000\b","method":"no","id":7, "params" : {"_meta":{}},"result":[ ]}'
)
"""JSON that parsers do not preserve: unknown fields, spaces, escapes, numbers, duplicate keys."""
CALLS = {
    "tools/call": b'"name":"odd", "arguments" :' + ODD,
    "resources/read": b'"uri":"test://x"',
    "prompts/get": b'"name":"p","arguments":{"a" : "b"}',
    "completion/complete": b'"ref":{"type":"ref/prompt","name":"p","x":%s},"argument":%s'
    % (ODD, b'{ "name":"a","value":""}'),
    "x/anything": b'"name":1,"uri":[],"cursor":null,"whatever": ' + ODD,
}
TOOL = b'{ "name":"odd","inputSchema":{"type":"object" ,"x":%s},"x-tool":%s}' % (ODD, ODD)
TOOL_2 = rb'{"inputSchema":{"type":"object"},"name":"na\u006de"}'
PROMPT = b'{"name" : "%s","x":' + ODD + b"}"
CAPABILITIES = (
    b'{ "tools":{"listChanged":true,"x" : 1},"resources":{},"prompts":{},"completions":{},'
    b'"experimental":{"x/y":%s}, "extensions" :{"com.example/z":%s},"x-unknown":%s}'
) % (ODD, ODD, ODD)
INFO = b'{"name":"recorder" ,"version":"1","x-info":%s}' % ODD
SAYS = rb'"M\u00fcsli \n"'
ERROR = b'{"code":-31999, "message":"no \\u2603","data":%s,"x-error":%s}' % (
    ODD,
    ODD,
)
PROGRESS = b'"progress":1.50,"total":1e3,"message":"\\u00e9","x-more":' + ODD


class Pair:
    """A client and a recording upstream, with `wrap` or a server's own door in between."""

    def __init__(self, client: Client, recording: Path, *, wraps: bool) -> None:
        self.client = client
        self.recording = recording
        self.wraps = wraps

    def params(self, fields: bytes, meta: bytes = b"") -> bytes:
        """These params with unknown fields, and what the era wants in `_meta`."""
        if self.client.modern:
            said = (PREFIX.encode(), MODERN.encode(), PREFIX.encode())
            meta += b'"%sprotocolVersion":"%s", "%sclientCapabilities":{"x" : {}},' % said
        return b'{ %s,"_meta": {%s"x/y":%s}, "x-more":%s }' % (fields, meta, ODD, ODD)

    def arrived(self, method: str) -> list[bytes]:
        """The raw params of what has reached the upstream."""
        raws = [raw for raw in recorded(self.recording) if raw_member(raw, "method")]
        named = [raw for raw in raws if raw_member(raw, "method") == dumps(method)]
        return [raw_member(raw, "params") or b"" for raw in named]


def result(era: str) -> bytes:
    return b'{ %s"content":[ {"type":"x" ,"x":%s}],"_meta":{"k":%s},"x-more":%s }' % (
        b'"resultType":"complete",' if era == "modern" else b"",
        ODD,
        ODD,
        ODD,
    )


def script(era: str) -> bytes:
    modern = era == "modern"
    said = b'"capabilities":%s,"instructions":%s,"x-top":%s,"_meta":{%s"k":%s}}' % (
        CAPABILITIES,
        SAYS,
        ODD,
        b'"io.modelcontextprotocol/serverInfo":%s,' % INFO if modern else b"",
        ODD,
    )
    caching = b'"resultType":"complete","ttlMs":0,"cacheScope":"private",' if modern else b""
    notice = b'{"jsonrpc":"2.0","method":"notifications/%s","params":%s}'
    progress = notice % (b"progress", b'{"progressToken":$TOKEN,%s}' % PROGRESS)
    lines = [
        b'initialize result {"protocolVersion":"2025-11-25","serverInfo":%s,%s' % (INFO, said),
        b"tools/list result {%s" % caching
        + b'"tools":[%s , %s],"_meta":{"k":%s},"x-list":%s}' % (TOOL, TOOL_2, ODD, ODD),
        b'resources/list result {%s"resources":[]}' % caching,
        b'resources/templates/list result {%s"resourceTemplates":[]}' % caching,
        b'prompts/list result {%s"prompts":[%s,%s],"nextCursor":"c"}'
        % (caching, PROMPT % b"p", PROMPT % b"q"),
        b'prompts/list result {%s"prompts":[%s]}' % (caching, PROMPT % b"r"),
        *(b"%s result %s" % (method.encode(), result(era)) for method in CALLS),
        b"x/fails error " + ERROR,
        b"x/told before " + notice % (b"x", ODD),
        b"x/told before " + notice % (b"message", b'{"level":"error" ,"data":%s}' % ODD),
        b"x/told result {}",
        b"x/works before " + progress,
        b"x/works result {}",
        b'x/type result { "resultType" :"x/unknown","y":%s}' % ODD,
    ]
    if modern:
        lines.append(b'server/discover result {"supportedVersions":["2026-07-28"],' + said)
    return b"\n".join(lines)


RUN_BY = {"plain": running.PLAIN, "linked": running.LINKED}
WAYS = pairs(("plain", "linked"), ("stdio", "http", "door"), ("legacy", "modern"))


@pytest.fixture(
    scope="module",
    params=[pytest.param(way, marks=pytest.mark.soak) for way in WAYS],
    ids="-".join,
)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    link, over, era = request.param
    by = RUN_BY[link]
    folder = tmp_path_factory.mktemp("faithful")
    (folder / "script").write_bytes(script(era))
    recording, modern = folder / "heard", era == "modern"
    said = (str(recording), str(folder / "script"), *(["--modern"] * modern))
    command = recorder("http" if over == "http" else "stdio", *said)
    with ExitStack() as stack:
        if over == "stdio":
            client: Client = stack.enter_context(
                Pipes(folder / "home", "--", *command, modern=modern, by=by)
            )
            if not modern:
                client.hello()
        elif over == "door":
            config = written(folder / "portico.toml", {"odd": entry(command)})
            gateway = stack.enter_context(Gateway(folder / "home", config, by=by))
            door = web(gateway.port, path="/servers/odd/mcp", modern=modern)
            client = stack.enter_context(door)
        else:
            url = stack.enter_context(listening(command))
            portico = stack.enter_context(Wrap(folder / "home", url, by=by))
            client = stack.enter_context(web(portico.port, modern=modern))
        yield Pair(client, recording, wraps=over != "door")


@pytest.mark.parametrize("method", CALLS)
def test_params_and_results_pass_byte_for_byte(pair: Pair, method: str) -> None:
    params = pair.params(CALLS[method])
    era = "modern" if pair.client.modern else "legacy"
    assert pair.client.ask(method, params) == result(era)
    assert pair.arrived(method)[-1] == params


def test_an_error_passes_byte_for_byte(pair: Pair) -> None:
    assert pair.client.error(pair.client.request("x/fails", pair.params(b'"a":1'))) == ERROR


def test_a_result_of_an_unknown_type_passes_byte_for_byte(pair: Pair) -> None:
    found = pair.client.ask("x/type", pair.params(b'"a":1'))
    assert found == b'{ "resultType" :"x/unknown","y":%s}' % ODD


def test_unknown_notifications_pass_both_ways(pair: Pair) -> None:
    level = b'"%slogLevel":"info",' % PREFIX.encode() if pair.client.modern else b""
    pair.client.ask("x/told", pair.params(b'"a":1', level))
    assert pair.client.next("notifications/x") == ODD
    assert pair.client.next("notifications/message") == b'{"level":"error" ,"data":%s}' % ODD
    params = pair.params(b'"b":2')
    pair.client.notify("notifications/y", params)
    assert until(lambda: pair.arrived("notifications/y") == [params])


@pytest.mark.parametrize("token", [b'"t\\u00e9 "', b"-7", b"12345678901234567890123"])
def test_only_the_progress_token_is_another(pair: Pair, token: bytes) -> None:
    params = pair.params(b'"a": ' + ODD, b'"progressToken" : %s,' % token)
    pair.client.told.clear()
    pair.client.ask("x/works", params)
    assert pair.client.heard("notifications/progress") == [
        b'{"progressToken":%s,%s}' % (token, PROGRESS)
    ]
    arrived = pair.arrived("x/works")[-1]
    assert [raw_member(arrived, key) for key in ("a", "x-more")] == [ODD, ODD]
    sent, came = raw_member(params, "_meta") or b"", raw_member(arrived, "_meta") or b""
    kept = [key for key in json.loads(sent) if key != "progressToken"]
    assert [raw_member(came, key) for key in kept] == [raw_member(sent, key) for key in kept]
    assert raw_member(came, "progressToken") != token
    assert list(json.loads(came)) == list(json.loads(sent))


@pytest.mark.parametrize(
    "id", [b'"a b\\u00e9"', '"é"'.encode(), b"123456789012345678901234567890", b"-3", b'""', b'"1"']
)
def test_an_answer_has_the_id_as_it_was_written(pair: Pair, id: bytes) -> None:
    pair.client.answers.pop(id, None)
    pair.client.request("resources/read", pair.params(CALLS["resources/read"]), id)
    assert pair.client.result(id)


def test_the_introduction_is_the_upstreams_own(pair: Pair) -> None:
    client = pair.client
    if client.modern:
        said = client.ask("server/discover", pair.params(b'"a":1'))
        info = raw_member(raw_member(said, "_meta") or b"", PREFIX + "serverInfo")
    else:
        said = raw_member(client.answers[b"0"], "result") or b""
        info = raw_member(said, "serverInfo")
    assert info == INFO
    assert raw_member(said, "capabilities") == CAPABILITIES
    assert raw_member(said, "instructions") == SAYS
    assert raw_member(said, "x-top") == ODD
    assert raw_member(raw_member(said, "_meta") or b"", "k") == ODD


def test_lists_are_the_upstreams_own(pair: Pair) -> None:
    page = pair.client.ask("tools/list", pair.params(b'"a":1'))
    assert_listed(pair, items(page, "tools"), [TOOL, TOOL_2])
    assert raw_member(page, "x-list") == ODD
    assert raw_member(raw_member(page, "_meta") or b"", "k") == ODD
    page = pair.client.ask("prompts/list", pair.params(b'"a":1'))
    assert_listed(pair, items(page, "prompts"), [PROMPT % b"p", PROMPT % b"q"])
    cursor = raw_member(page, "nextCursor")
    assert cursor is not None
    page = pair.client.ask("prompts/list", pair.params(b'"cursor":%s' % cursor))
    assert_listed(pair, items(page, "prompts"), [PROMPT % b"r"])
    assert raw_member(page, "nextCursor") is None


def assert_listed(pair: Pair, found: list[bytes], sent: list[bytes]) -> None:
    """Hold definitions against those of the server: by bytes, but a gateway writes those anew that
    have control characters in them, and marks them."""
    if pair.wraps:
        assert found == sent
    else:
        whole = [{**json.loads(one), "_meta": None} for one in found]
        assert whole == [{**json.loads(one), "_meta": None} for one in sent]


def items(page: bytes, field: str) -> list[bytes]:
    """The members of a list in a result, each as it was written."""
    listed = raw_member(page, field)
    assert listed is not None
    text = listed.decode()
    decoder, at, found = json.JSONDecoder(), 1, []
    while (at := at + len(text[at:]) - len(text[at:].lstrip(" ,"))) < len(text) - 1:
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end].encode())
        at = end
    return found


# Ids and tokens of several clients.


def test_equal_ids_and_tokens_of_two_clients_are_kept_apart(
    tmp_path: Path, by: Sequence[str]
) -> None:
    with (
        Wrap(tmp_path, "--", *bad("stdio", "silent"), by=by) as portico,
        web(portico.port) as one,
        web(portico.port) as two,
    ):
        for client, ms in ((one, 300), (two, 200)):
            assert client.start("slow", meta={"progressToken": "p"}, ms=ms, steps=2) == b"1"
        assert one.said(b"1") == "slept 300 ms"
        assert two.said(b"1") == "slept 200 ms"
        for client in (one, two):
            moved = [json.loads(raw) for raw in client.heard("notifications/progress")]
            assert [params["progress"] for params in moved] == [1, 2]
            assert {params["progressToken"] for params in moved} == {"p"}


def test_a_question_without_params_is_asked_and_answered_as_it_is(
    tmp_path: Path, by: Sequence[str]
) -> None:
    asks = b'{"jsonrpc":"2.0","id":"q\\u00e9","method":"roots/list"}'
    (tmp_path / "script").write_bytes(b"x/asks before %s\nx/asks result {}" % asks)
    recording = tmp_path / "heard"
    command = recorder("stdio", str(recording), str(tmp_path / "script"))
    answers: dict[str, dict[str, Any]] = {"roots/list": {"roots": [], "x": 1}}
    with Pipes(tmp_path, "--", *command, answers=answers, by=by) as client:
        client.hello({"roots": {}})
        client.ask("x/asks", b"{}")
        assert client.next("roots/list") == b""
        assert until(lambda: b"result" in recorded(recording)[-1])
    assert raw_member(recorded(recording)[-1], "id") == b'"q\\u00e9"'
    assert raw_member(recorded(recording)[-1], "result") == dumps(answers["roots/list"])


# Spaces that mean something to a transport.


def test_a_message_on_several_lines_reaches_a_child_on_one(
    tmp_path: Path, by: Sequence[str]
) -> None:
    (tmp_path / "script").write_bytes(b"x/y result {\r}")
    recording = tmp_path / "heard"
    command = recorder("stdio", str(recording), str(tmp_path / "script"))
    with Wrap(tmp_path, "--", *command, by=by) as portico, web(portico.port) as client:
        params: dict[str, Any] = {"a": ["\n\r", {"b": None}], "_meta": {"progressToken": 1}}
        client.request("x/y", json.dumps(params, indent=2).replace("\n", "\r\n").encode(), b"5")
        assert json.loads(client.result(b"5")) == {}
        del params["_meta"]
        client.request("x/y", json.dumps(params, indent=2).encode(), b"6")
        assert json.loads(client.result(b"6")) == {}
        client.notify("notifications/y", json.dumps(params, indent=2).encode())
        assert until(lambda: b"notifications/y" in recording.read_bytes())
    arrived = [json.loads(line) for line in recorded(recording)]
    assert [message["params"] for message in arrived if message["method"] == "x/y"][1] == params
    assert arrived[-1]["params"] == params


class Pretty(BaseHTTPRequestHandler):
    """A server whose answers are meant for people: on several lines."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, id = message["method"], message.get("id")
        answer: dict[str, Any] = {"result": {"text": "a\nb", "list": [1, 2]}}
        if method == "initialize":
            info = {"name": "pretty", "version": "1", "x": [1]}
            said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            answer = {"result": said | {"serverInfo": info}}
        elif method == "tools/list":
            answer = {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
        elif method == "x/fails":
            answer = {"error": {"code": 1, "message": "no", "data": [1]}}
        body = json.dumps({"jsonrpc": "2.0", "id": id} | answer, indent=2).encode()
        self.send_response(202 if id is None else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body) if id is not None else 0))
        self.end_headers()
        if id is not None:
            self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize("front", ["http", "stdio"])
def test_an_answer_on_several_lines_reaches_a_client_whole(
    tmp_path: Path, front: str, by: Sequence[str]
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pretty)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
    try:
        if front == "http":
            with Wrap(tmp_path, url, by=by) as portico, web(portico.port) as client:
                _hears_all_that_is_pretty(client)
        else:
            with Pipes(tmp_path, url, by=by) as piped:
                piped.hello()
                _hears_all_that_is_pretty(piped)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _hears_all_that_is_pretty(client: Client) -> None:
    hello = raw_member(client.answers[b"0"], "result") or b""
    assert json.loads(hello)["serverInfo"]["x"] == [1]
    assert json.loads(client.ask("tools/list"))["tools"][0]["name"] == "t"
    called = client.ask("tools/call", b'{"name":"t"}')
    assert json.loads(called) == {"text": "a\nb", "list": [1, 2]}
    refused = client.error(client.request("x/fails", b"{}"))
    assert json.loads(refused) == {"code": 1, "message": "no", "data": [1]}


NO_ERRORS = ('{"code":"ENOENT","message":"no"}', '"just words"', '{"code":1.5,"message":"x"}')


def test_what_is_no_error_by_json_rpc_is_an_answer_all_the_same(
    tmp_path: Path, by: Sequence[str]
) -> None:
    lines = [f"x/{number} error {error}" for number, error in enumerate(NO_ERRORS)]
    (tmp_path / "script").write_text("\n".join(lines))
    command = recorder("stdio", str(tmp_path / "heard"), str(tmp_path / "script"))
    with Pipes(tmp_path, "--", *command, by=by) as client:
        client.hello()
        for number, error in enumerate(NO_ERRORS):
            refused = json.loads(client.error(client.request(f"x/{number}", b"{}")))
            assert refused["code"] == -32603
            assert refused["data"] == json.loads(error)


# Any JSON at all.

SPACE = st.sampled_from(["", "", " ", "  ", "\t"])
NUMBER = st.from_regex(
    r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
PLAIN = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='"\\'), max_size=8
)
ESCAPE = st.sampled_from(
    [r"\u00e9", r"\ud83d\ude00", r"\/", r"\\", r"\"", r"\n", r"\u0000", r"\u2028", r"\u007F"]
)
STRING = st.lists(PLAIN | ESCAPE, max_size=3).map(lambda parts: f'"{"".join(parts)}"')


def fields(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """An object as somebody may write it."""
    member = st.tuples(SPACE, STRING, SPACE, value, SPACE).map(lambda m: "{}{}{}:{}{}".format(*m))
    return st.lists(member, max_size=3).map(lambda members: "{" + ",".join(members) + "}")


def array(value: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """An array, likewise."""
    member = st.tuples(SPACE, value, SPACE).map("".join)
    return st.lists(member, max_size=3).map(lambda members: "[" + ",".join(members) + "]")


SCALAR = NUMBER | STRING | st.sampled_from(["true", "false", "null"])
VALUE: st.SearchStrategy[str] = st.deferred(lambda: SCALAR | fields(VALUE) | array(VALUE))


@pytest.fixture(scope="module")
def echoing(by: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    home = tmp_path_factory.mktemp("echoing")
    with Pipes(home, "--", *bad("stdio", "extra"), by=by) as client:
        client.hello()
        yield client


@pytest.mark.soak
@settings(max_examples=times(100, 1000))
@given(fields(VALUE))
def test_whatever_is_sent_comes_back_as_it_was(echoing: Client, params: str) -> None:
    assert echoing.ask("x/echo", params.encode()).decode() == params
