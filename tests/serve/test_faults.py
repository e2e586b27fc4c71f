"""Bad servers in a gateway: their calls fail in their name, and everybody else's go on."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.badmodes import SECRET
from tests.rigs.running import bad, listening, recorder
from tests.serve.gateway import Entry, Gateway, command, result_of, text_in, written
from tests.support.running import WAIT_S
from tests.wrap.faults import Client, Steady, alive, bounded, command_line, descendants, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-faults")]

SMUGGLED = "Adds numbers.\u200b\u202e \x1b]0;owned\x07\x1b[2J \U000e0049\U000e0067 \u2066ignore"
STRANGE: list[Any] = [
    {"required": [{}, 1], "properties": {"a": {"anyOf": 5, "enum": [{}]}, "b\u202e": 7}},
    {"properties": {"a": json.loads('{"type":"array","items":' * 50 + "{}" + "}" * 50)}},
    {"properties": [], "required": "a", "type": ["object", {}]},
    {"$ref": "http://127.0.0.1:1/schema"},
    {"properties": {"a": {"enum": ["x\u200by"], "pattern": "(a+)+$"}}},
    "no schema",
]
TIMES = {"call": 10}


class Behind(Client):
    """A client that calls the tools of one server, through `execute_tool`."""

    def __init__(self, port: int, server: str) -> None:
        super().__init__(port)
        self.server = server

    def call(self, tool: str, within: float | None = None, **arguments: Any) -> dict[str, Any]:
        """The answer to the call of a tool."""
        asked: dict[str, Any] = {"name": f"{self.server}__{tool}", "arguments": arguments}
        if within is not None:
            asked["timeout_s"] = within
        return super().call("execute_tool", **asked)

    def works(self) -> bool:
        """True if its server answers."""
        return text_in(result_of(self.call("echo", text="hi"))) == "hi"

    def failed(self, kind: str, tool: str, **more: Any) -> str:
        """The words in which a call fails: by its server's name, and with this kind."""
        result = result_of(self.call(tool, **more))
        words = text_in(result)
        assert result["isError"], words
        about = result["_meta"]["portico/error"]
        assert (about["kind"], about["server"]) == (kind, self.server), words
        assert self.server in words
        return words


class Unmoved(Steady):
    """Calls the healthy server all the time; each answer must be the one to its own question."""

    def _once(self) -> None:
        text = f"{threading.get_ident()} {self.calls} é"
        answer = self._client.call("echo", text=text)
        self.calls += 1
        if answer.get("result", {}).get("content") != [{"type": "text", "text": text}]:
            self.wrong.append(json.dumps(answer))


def scripted(folder: Path, name: str, tools: list[dict[str, Any]]) -> Entry:
    """A server that lists these tools, and says its name when one is called."""
    script = folder / f"{name}.script"
    said = {"content": [{"type": "text", "text": name}]}
    listed = json.dumps({"tools": tools})
    script.write_text(f"tools/list result {listed}\ntools/call result {json.dumps(said)}\n")
    return command(recorder("stdio", str(folder / f"{name}.heard"), str(script)))


def bad_ones(folder: Path, url: str) -> dict[str, Entry]:
    """One that is well, and every kind that is not."""
    schema = {"type": "object"}
    long = [{"name": "long", "description": "very long " * 100_000, "inputSchema": schema}]
    odd = [
        {"name": "add\u200b", "title": "\x1b[31mred", "description": SMUGGLED, "inputSchema": {}},
        {"name": "x" * 300, "description": "A long name.", "inputSchema": schema},
        {"name": "ta bs\tand/slashes", "inputSchema": schema},
        *({"name": f"strange {n}", "inputSchema": of} for n, of in enumerate(STRANGE)),
    ]
    return {
        "well": command(bad("stdio", "plain")),
        "rogue": command(bad("stdio", "plain"), timeouts=TIMES),
        "web": {"url": url, "timeouts": TIMES},
        "gone": {"url": "http://127.0.0.1:1/mcp", "timeouts": TIMES},
        "crashes": command(bad("stdio", "exits"), timeouts=TIMES),
        "hangs": command(["sleep", "1000"], timeouts={"init": 3}),
        "chatters": command(["yes", "not a message"], timeouts=TIMES),
        "endless": command(bad("stdio", "cursor"), timeouts=TIMES),
        "many": command(bad("stdio", "many", "10000")),
        "long": scripted(folder, "long", long),
        "odd": scripted(folder, "odd", odd),
    }


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """All of them behind one gateway, asked for what they offer."""
    folder = tmp_path_factory.mktemp("faults")
    with listening(bad("http", "plain")) as url:
        config = written(folder / "portico.toml", bad_ones(folder, url))
        with Gateway(folder / "home", config) as running, running.client() as client:
            client.call("refresh_tools")
            yield running
    assert "Traceback" not in running.stderr()
    assert SECRET not in running.stderr()


@contextmanager
def undisturbed(gateway: Gateway) -> Iterator[None]:
    """While the block runs, three clients of the healthy server must not notice."""
    with ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(Behind(gateway.port, "well"))
            assert until(client.works)  # at the very first start it is not known at once
            stack.enter_context(Unmoved(client))
        yield


@pytest.fixture
def unmoved(gateway: Gateway) -> Iterator[None]:
    """While the test runs, nobody else may notice."""
    with undisturbed(gateway):
        yield


@pytest.fixture
def rogue(gateway: Gateway) -> Iterator[Behind]:
    """A client of the one that misbehaves as it is told to."""
    with Behind(gateway.port, "rogue") as client:
        assert until(client.works)
        yield client


def test_those_that_cannot_say_what_they_offer_are_named_with_the_reason(gateway: Gateway) -> None:
    status = gateway.status()
    for name, words in (
        ("gone", "cannot be reached"),
        ("crashes", "no API key"),
        ("hangs", "3 s"),
        ("chatters", "that are not messages"),
        ("endless", "could not list its tools"),
    ):
        assert words in status[name]["error"], (name, status[name]["error"])
    assert "1000 pages" in gateway.stderr()
    counted = {name: one["tools"] for name, one in status.items() if not one["error"]}
    assert counted == {"well": 9, "rogue": 9, "web": 9, "many": 10_000, "long": 1, "odd": 9}


@pytest.mark.usefixtures("unmoved")
@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("killed", "exited", "SIGKILL"),
        ("half", "exited", "exited"),
        ("garbage", "garbage", "lines in a row that are not messages"),
        ("huge", "too_large", "bytes without a newline"),
        ("deep", "garbage", "nested deeper"),
        ("bad-utf8", "garbage", "not UTF-8"),
    ],
)
def test_what_a_server_breaks_fails_in_its_name(
    gateway: Gateway, rogue: Behind, mode: str, kind: str, words: str
) -> None:
    with bounded(gateway):
        assert words in rogue.failed(kind, "bad", mode=mode)
        assert until(rogue.works)


@pytest.mark.usefixtures("unmoved")
def test_a_call_by_a_tools_full_name_fails_as_an_error(gateway: Gateway, rogue: Behind) -> None:
    with gateway.client() as client:
        error = client.call("rogue__bad", mode="killed")["error"]
    assert error["code"] == -32603
    assert (error["data"]["kind"], error["data"]["server"]) == ("exited", "rogue")
    assert until(rogue.works)


@pytest.mark.usefixtures("unmoved")
@pytest.mark.parametrize("mode", ["silent", "stops-reading"])
def test_a_call_without_an_answer_ends_at_its_limit(rogue: Behind, mode: str) -> None:
    child = int(rogue.said("pid"))
    assert "within 0.5 s" in rogue.failed("timeout", "bad", within=0.5, mode=mode)
    if mode == "stops-reading":
        rogue.failed("timeout", "echo", within=0.3, text="x")
        os.kill(child, signal.SIGKILL)
    assert until(rogue.works)


@pytest.mark.usefixtures("unmoved")
@pytest.mark.parametrize("mode", ["wrong-id", "string-id", "unasked"])
def test_answers_to_other_questions_are_passed_over(rogue: Behind, mode: str) -> None:
    assert rogue.said("bad", mode=mode) == "right"


@pytest.mark.usefixtures("unmoved")
def test_a_flood_of_stderr_is_drained_bounded_and_its_secrets_stay_there(
    gateway: Gateway, rogue: Behind
) -> None:
    with bounded(gateway):
        assert rogue.said("bad", mode="stderr") == "after the noise"
    logs = gateway.home / "state" / "logs"
    kept = [file.read_bytes() for file in logs.iterdir()]
    assert sum(map(len, kept)) < 25_000_000
    assert not any(SECRET.encode() in log for log in kept)


@pytest.mark.usefixtures("unmoved")
def test_a_storm_of_changes_is_no_news_where_nothing_changed(
    gateway: Gateway, rogue: Behind
) -> None:
    with gateway.client() as client, client.listening() as heard:
        assert rogue.said("bad", mode="storm") == "after the storm"
        assert until(lambda: int(rogue.said("count")) > 1)
        assert heard == []


@pytest.mark.usefixtures("unmoved")
@pytest.mark.parametrize(("mode", "kind"), [("status", "http"), ("reset", "network")])
def test_a_server_on_the_web_fails_in_its_name(gateway: Gateway, mode: str, kind: str) -> None:
    with Behind(gateway.port, "web") as web:
        assert web.said("echo", text="hi") == "hi"
        web.failed(kind, "bad", mode=mode)
        assert until(web.works)


@pytest.mark.usefixtures("unmoved")
def test_ten_thousand_tools_are_found_and_called(gateway: Gateway) -> None:
    with Behind(gateway.port, "many") as many, gateway.client() as client:

        def first() -> str:
            found = client.call("search_tools", query="tool-9876", limit=3)
            name: str = result_of(found)["structuredContent"]["results"][0]["tools"][0]["name"]
            return name

        assert until(lambda: first() == "many__tool-9876")  # once all of them are indexed
        assert many.said("echo", text="hi") == "hi"
        listed = client.ask("tools/list")["result"]["tools"]
        assert len(listed) == 6


def test_a_description_of_a_megabyte_is_cut_where_a_model_reads_it(gateway: Gateway) -> None:
    with gateway.client() as client:
        brief = client.call("search_tools", query="very long")
        full = client.call("describe_tool", name="long__long")
        assert len(json.dumps(brief)) < 20_000
        assert len(json.dumps(full)) < 40_000
        assert "more characters" in text_in(result_of(full))
    with Behind(gateway.port, "long") as long:
        assert long.said("long") == "long"


def test_what_is_hidden_in_names_and_words_is_shown_and_flagged(gateway: Gateway) -> None:
    with gateway.client() as client:
        answer = result_of(client.call("search_tools", query="adds numbers", server="odd"))
        (tool, *_) = answer["structuredContent"]["results"][0]["tools"]
        full = result_of(client.call("describe_tool", name=tool["name"]))
        for shown in (answer, full):
            text = json.dumps(shown, ensure_ascii=False)
            assert not any(sign in text for sign in "\u200b\u202e\x1b\x07\u2066\U000e0049")
            assert "\\\\u001b" not in text
            assert "hidden characters" in text
            assert "\\u{1b}" in text_in(shown)
        status = json.dumps(client.call("gateway_status", detail="full"), ensure_ascii=False)
        assert "\x1b" not in status
    with Behind(gateway.port, "odd") as odd:
        assert odd.said(tool["name"].removeprefix("odd__")) == "odd"


def test_schemas_that_are_none_break_neither_search_nor_calls(gateway: Gateway) -> None:
    with gateway.client() as client:
        found = result_of(client.call("search_tools", query="strange", server="odd", limit=20))
        names = [tool["name"] for tool in found["structuredContent"]["results"][0]["tools"]]
        assert len(names) == len(STRANGE)
        said = text_in(result_of(client.call("describe_tool", names=names)))
        for text in (text_in(found), said):
            assert not any(sign in text for sign in "\u200b\u202e")
        for name in names:
            answer = client.call("execute_tool", name=name, arguments={"a": "a" * 30 + "!"})
            assert text_in(result_of(answer))


def test_names_that_are_too_long_or_have_blanks_are_made_to_fit(gateway: Gateway) -> None:
    with gateway.client() as client:
        answer = result_of(client.call("search_tools", query="long name", server="odd", limit=9))
        names = [tool["name"] for tool in answer["structuredContent"]["results"][0]["tools"]]
        assert all(len(name) <= 64 and name.isascii() and " " not in name for name in names)
        for name in names:
            assert client.said("execute_tool", name=name, arguments={}) == "odd"


def test_a_server_that_flaps_is_used_when_it_is_up(tmp_path: Path) -> None:
    entries = {
        "well": command(bad("stdio", "plain")),
        "flaps": command(bad("stdio", "exits-until", str(tmp_path / "starts"), "3")),
    }
    config = written(tmp_path / "portico.toml", entries)
    with (
        Gateway(tmp_path / "home", config) as running,
        Behind(running.port, "flaps") as flaps,
        undisturbed(running),
        running.client() as client,
    ):

        def up() -> bool:
            client.call("refresh_tools", server="flaps")
            return flaps.works()

        assert until(up)
        assert flaps.said("echo", text="at last") == "at last"


def test_a_server_that_cannot_start_reports_that_once_and_not_at_every_call(
    tmp_path: Path,
) -> None:
    why, starts = "the reason why it fails", tmp_path / "starts"
    entry = command(["sh", "-c", f"echo . >>{starts}; echo {why} >&2; exit 7"])
    config = written(tmp_path / "portico.toml", {"broken": entry})
    with Gateway(tmp_path / "home", config) as running, running.client() as client:
        assert until(lambda: why in running.stderr())
        for _ in range(10):
            called = result_of(client.call("execute_tool", name="broken__echo", arguments={}))
            assert why in text_in(called)
        client.call("refresh_tools", server="broken")
        assert until(lambda: len(starts.read_text().split()) > 1)
        assert running.stderr().count(why) == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_no_process_is_left_however_the_gateway_ends(tmp_path: Path, how: signal.Signals) -> None:
    entries = {
        "well": command(bad("stdio", "plain")),
        "deaf": command(bad("stdio", "stops-reading")),
        "stubborn": command(["sh", "-c", "trap '' TERM HUP INT; sleep 1000 & wait; sleep 1000"]),
        "hangs": command(["sleep", "1000"]),
    }
    config = written(tmp_path / "portico.toml", entries)
    running = Gateway(tmp_path / "home", config)
    try:
        with Behind(running.port, "deaf") as deaf:
            assert until(deaf.works)
            deaf.failed("timeout", "bad", within=0.2)
        assert until(lambda: "sleep 1000" in " ".join(commands(running)))
        kin = descendants(running.process.pid)
        assert len(kin) >= 4
        running.process.send_signal(how)
        running.process.wait(WAIT_S)
        assert until(lambda: not alive(kin), within_s=4 * 2), "it left processes"
    finally:
        with running:
            pass


def commands(running: Gateway) -> list[str]:
    """What it has started, as far as it still runs."""
    return [command_line(pid) for pid in alive(descendants(running.process.pid))]
