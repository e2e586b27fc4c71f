"""One child misbehaves; its caller is told, everybody else goes on, and nothing is left of it.

The rows are those of the upstream faults in ../shared/reference/reliability.md.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from sys import executable
from typing import Any

import pytest

from tests.rigs.badmodes import SECRET
from tests.rigs.running import bad, recorder
from tests.wrap.faults import (
    NAME,
    ODD,
    Client,
    Steady,
    Wrap,
    bounded,
    failure,
    until,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults-stdio")]
MOODY = str(Path(__file__).with_name("moody.py"))


@pytest.fixture(scope="module")
def portico(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrap]:
    """One Portico before one command; each client has a child of its own."""
    home = tmp_path_factory.mktemp("home")
    options = ("--name", NAME, "--sharing", "per-client", "--call-timeout", "10")
    with Wrap(home, *options, "--", *bad("stdio", "plain")) as wrap:
        yield wrap
    assert "Traceback" not in wrap.stderr()


@pytest.fixture
def steady(portico: Wrap) -> Iterator[None]:
    """While the test runs, another client must not notice."""
    with portico.client() as client, Steady(client):
        yield


def texts(client: Client, *words: str) -> None:
    """The next call works."""
    for text in words or ("well again",):
        assert client.said("echo", text=text) == text


@pytest.mark.usefixtures("steady")
def test_a_child_killed_in_a_call_fails_it_at_once_and_is_started_again(portico: Wrap) -> None:
    with bounded(portico), portico.client() as client:
        first = client.said("pid")
        for _ in range(3):
            error = failure(client.call("bad", mode="killed"), "exited")
            assert "SIGKILL" in error["message"]
            assert error["data"]["exit_code"] == -9
            texts(client)
        assert client.said("pid") != first


@pytest.mark.usefixtures("steady")
def test_half_an_answer_and_the_end_fail_the_call_at_once(portico: Wrap) -> None:
    with bounded(portico), portico.client() as client:
        texts(client)
        error = failure(client.call("bad", mode="half"), "exited")
        assert error["data"]["exit_code"] == 0
        texts(client)


@pytest.mark.usefixtures("steady")
def test_a_call_without_an_answer_times_out_and_is_cancelled(portico: Wrap) -> None:
    with bounded(portico), portico.client() as client:
        child = client.said("pid")
        error = failure(client.call("bad", within=0.3, mode="silent"), "timeout")
        assert "within 0.3 s" in error["message"]
        assert until(lambda: client.said("count", method="notifications/cancelled") == "1")
        assert client.said("pid") == child


@pytest.mark.usefixtures("steady")
def test_a_child_that_stops_reading_blocks_nobody(portico: Wrap) -> None:
    """Its queue is bounded, and each call ends in time."""
    with bounded(portico), portico.client() as client:
        texts(client)
        failure(client.call("bad", within=0.3, mode="stops-reading"), "timeout")
        for _ in range(3):
            failure(client.call("echo", within=0.3, text="x" * 1_000_000), "timeout")


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [
        ("garbage", "garbage", "lines in a row that are not messages"),
        ("huge", "too_large", "bytes without a newline"),
        ("endless", "too_large", "bytes without a newline"),
    ],
)
def test_a_flood_is_cut_off_and_the_child_is_started_again(
    portico: Wrap, mode: str, kind: str, words: str
) -> None:
    with bounded(portico), portico.client() as client:
        first = client.said("pid")
        assert words in failure(client.call("bad", mode=mode), kind)["message"]
        texts(client)
        assert client.said("pid") != first


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("deep", "nested deeper"),
        ("nan", "not JSON"),
        ("bad-utf8", "not UTF-8"),
        ("surrogate", "not JSON"),
        ("nul", "not JSON"),
    ],
)
def test_an_answer_that_cannot_be_read_fails_its_call_at_once_and_no_other(
    portico: Wrap, mode: str, words: str
) -> None:
    with bounded(portico), portico.client() as client:
        child = client.said("pid")
        error = failure(client.call("bad", mode=mode), "garbage")
        assert words in error["message"]
        assert client.said("pid") == child


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(("mode", "text"), ODD)
def test_what_is_odd_but_can_be_read_is_answered_once(portico: Wrap, mode: str, text: str) -> None:
    with bounded(portico), portico.client() as client:
        child = client.said("pid")
        assert client.said("bad", mode=mode) == text
        texts(client, "one", "two")
        assert client.said("pid") == child


def test_a_number_of_many_digits_arrives_as_it_is(portico: Wrap) -> None:
    with bounded(portico), portico.client() as client:
        answer = client.call("bad", mode="bigint")
        assert answer["result"]["structuredContent"]["value"] == "9" * 100_000


@pytest.mark.usefixtures("steady")
def test_stderr_is_drained_and_its_secrets_stay_there(portico: Wrap) -> None:
    """Also when its stderr is quoted because it exited."""
    with bounded(portico), portico.client() as client:
        assert client.said("bad", mode="stderr") == "after the noise"
        dead = failure(client.call("bad", mode="killed"), "exited")
        assert "Authorization: Bearer ***" in dead["message"]
        assert "Authorization: Bearer ***" in dead["data"]["stderr"]
        assert SECRET not in json.dumps(dead)
        assert "SECRET" not in portico.stderr()


@pytest.mark.usefixtures("steady")
def test_a_storm_of_changes_ends_in_one_refresh_a_second(portico: Wrap) -> None:
    with bounded(portico), portico.client() as client, client.listening() as heard:
        texts(client)
        before = int(client.said("count"))
        began = time.monotonic()
        assert client.said("bad", mode="storm") == "after the storm"
        assert until(lambda: int(client.said("count")) > before)
        assert until(lambda: heard)  # the server's own word is passed on, though nothing changed
        took = time.monotonic() - began
        assert int(client.said("count")) - before <= 1 + took
        assert len(heard) <= 1 + took


def test_a_real_change_is_told_once_however_often_the_server_says_so(tmp_path: Path) -> None:
    command = (executable, "-I", "-S", MOODY, str(tmp_path / "marks"), "0")
    with (
        Wrap(tmp_path / "home", "--", *command) as wrap,
        wrap.client() as client,
        wrap.client() as other,
        client.listening() as heard,
        other.listening() as heard_too,
    ):
        assert client.said("grow") == "grown"

        def grown() -> bool:
            return "grown-0" in json.dumps(other.ask("tools/list"))

        assert until(grown)
        assert until(lambda: len(heard) == len(heard_too) == 1)
        time.sleep(1.5)  # for what must not come: a refresh is due by then
        assert [message["method"] for message in heard + heard_too] == [
            "notifications/tools/list_changed",
            "notifications/tools/list_changed",
        ]


def test_a_change_that_comes_while_the_lists_are_asked_for_is_not_missed(tmp_path: Path) -> None:
    changed = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "prompts": {}},
        "serverInfo": {"name": "recorder", "version": "1"},
    }
    schema: dict[str, Any] = {}
    tools = [{"tools": [{"name": name, "inputSchema": schema}]} for name in ("old", "new")]
    script = tmp_path / "script"
    script.write_text(
        f"initialize result {json.dumps(hello)}\n"
        f"tools/list result {json.dumps(tools[0])}\ntools/list result {json.dumps(tools[1])}\n"
        f'prompts/list before {changed}\nprompts/list result {{"prompts":[]}}\n'
    )
    command = recorder("stdio", str(tmp_path / "heard"), str(script))
    with Wrap(tmp_path / "home", "--", *command) as wrap, wrap.client() as client:
        assert client.ask("tools/list")["result"]["tools"][0]["name"] == "old"
        assert until(lambda: client.ask("tools/list")["result"]["tools"][0]["name"] == "new", 8)


@pytest.mark.parametrize("tool", ["again", "look"])
def test_a_call_that_may_run_twice_is_begun_again_once(tmp_path: Path, tool: str) -> None:
    marks = tmp_path / "marks"
    command = (executable, "-I", "-S", MOODY, str(marks))
    with Wrap(tmp_path / "home", "--", *command, "1") as wrap, wrap.client() as client:
        assert client.said(tool) == "done"
        assert marks.read_text().split() == [tool, tool]
        # With the connection open a call takes a shorter way; the promise is the same.
        marks.write_text("")
        assert client.said(tool) == "done"
        assert marks.read_text().split() == [tool, tool]


def test_a_call_that_may_run_twice_is_not_begun_a_third_time(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    command = (executable, "-I", "-S", MOODY, str(marks), "4")
    with Wrap(tmp_path / "home", "--name", NAME, "--", *command) as wrap, wrap.client() as client:
        failure(client.call("again"), "exited")
        assert marks.read_text().split() == ["again"] * 2
        # As above, by the shorter way, with the connection open.
        marks.write_text("x\n" * 4)
        assert until(lambda: "result" in client.call("look"))
        marks.write_text("")
        failure(client.call("again"), "exited")
        assert marks.read_text().split() == ["again"] * 2


def test_a_call_that_may_not_run_twice_is_never_begun_again(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    command = (executable, "-I", "-S", MOODY, str(marks), "1")
    with Wrap(tmp_path / "home", "--name", NAME, "--", *command) as wrap, wrap.client() as client:
        failure(client.call("once"), "exited")
        assert marks.read_text().split() == ["once"]
        assert client.said("once") == "done"
        marks.write_text("")
        failure(client.call("once"), "exited")
        assert marks.read_text().split() == ["once"]


def test_reading_a_resource_is_begun_again(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    command = (executable, "-I", "-S", MOODY, str(marks), "1")
    with Wrap(tmp_path / "home", "--", *command) as wrap, wrap.client() as client:
        answer = client.ask("resources/read", {"uri": "test://note"})
        assert answer["result"]["contents"][0]["text"] == "a note"
        assert marks.read_text().split() == ["read", "read"]


def test_a_plain_call_times_out_as_the_command_line_says(tmp_path: Path) -> None:
    options = ("--name", NAME, "--call-timeout", "0.8")
    with (
        Wrap(tmp_path, *options, "--", *bad("stdio", "silent")) as wrap,
        wrap.client() as client,
    ):
        texts(client)
        error = failure(client.call("bad"), "timeout")
        assert "within 0.8 s" in error["message"]
        assert until(lambda: client.said("count", method="notifications/cancelled") == "1")
        assert "result" in client.call("slow", ms=100)


@pytest.mark.parametrize(("mode", "words"), [("cursor", "1000 pages"), ("many", "100000 entries")])
def test_a_list_without_end_is_given_up_and_the_rest_works(
    tmp_path: Path, mode: str, words: str
) -> None:
    options = ("--sharing", "per-client", "--", *bad("stdio", mode))
    with Wrap(tmp_path, *options) as wrap, wrap.client() as client:
        texts(client)
        with bounded(wrap), wrap.client() as other, Steady(client):
            assert "tools" in other.ask("tools/list")["result"]  # one page, as the server gives it
            assert other.ask("prompts/list")["result"]["prompts"][0]["name"] == "hello"
            texts(other)
        assert words in wrap.stderr()
