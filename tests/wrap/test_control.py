"""Control of a running `wrap`: `portico servers`, a signal, and unauthorized attempts."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.rigs.running import bad, shelf
from tests.support.running import WAIT_S
from tests.wrap.standing import Standing, servers, until


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "tools"
    file.write_text("lists announce one")
    return file


@contextmanager
def reached(wrap: Standing) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as talk:
        talk.settimeout(WAIT_S)
        talk.connect(str(wrap.socket))
        yield talk


def answer(talk: socket.socket, line: bytes) -> dict[str, object]:
    talk.sendall(line + b"\n")
    with talk.makefile("rb") as lines:
        found: dict[str, object] = json.loads(lines.readline())
    return found


def test_what_runs_is_listed_with_its_state_and_what_it_offers(home: Path, words: Path) -> None:
    with Standing(home, "--name", "shelf", "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.tools()
        wrap.reachable()
        shown = servers(home, "list")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout == f"shelf  pid {wrap.process.pid}  idle  3 tools\n"
        (told,) = json.loads(servers(home, "list", "shelf", "--json").stdout)
        assert told["server"] == "shelf"
        assert told["pid"] == wrap.process.pid
        assert told["lists"] == {"tools": 3}
        assert told["connections"][0]["starts"] == 1
    assert not wrap.socket.exists()


def test_a_refresh_is_over_when_clients_have_the_new_list(home: Path, words: Path) -> None:
    with Standing(home, "--name", "shelf", "--", *shelf(words)) as wrap:
        wrap.initialize()
        assert wrap.tools() == ["lists", "announce", "one"]
        wrap.reachable()
        words.write_text("lists two")
        done = servers(home, "refresh", "shelf")
        assert (done.returncode, done.stderr) == (0, "")
        assert "2 tools" in done.stdout
        assert wrap.receive()["method"] == "notifications/tools/list_changed"
        assert wrap.tools() == ["lists", "two"]


def test_a_refresh_reaches_all_that_run_or_the_one_that_is_named(home: Path, words: Path) -> None:
    with (
        Standing(home, "--name", "first", "--", *shelf(words)) as first,
        Standing(home, "--name", "second", "--no-cache", "--", *shelf(words)) as second,
    ):
        for wrap in (first, second):
            wrap.initialize()
            wrap.reachable()
        assert [first.said("lists"), second.said("lists")] == ["1", "1"]
        assert servers(home, "refresh", "second").returncode == 0
        assert [first.said("lists"), second.said("lists")] == ["1", "2"]
        both = servers(home, "refresh", "--json")
        assert {told["server"] for told in json.loads(both.stdout)} == {"first", "second"}
        assert [first.said("lists"), second.said("lists")] == ["2", "3"]


def test_without_anything_to_ask_it_fails_and_says_so(home: Path, words: Path) -> None:
    none = servers(home, "refresh")
    assert (none.returncode, none.stdout) == (1, "")
    assert none.stderr.startswith("portico: no gateway is running, and there is no config at ")
    with Standing(home, "--name", "shelf", "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.reachable()
        other = servers(home, "refresh", "nobody")
        assert other.returncode == 1
        assert other.stderr == ("portico: there is no server 'nobody'; choose from shelf\n")


def test_a_server_that_cannot_be_refreshed_fails_the_command(home: Path, words: Path) -> None:
    with Standing(home, "--name", "shelf", "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.reachable()
        words.unlink()
        words.mkdir()  # from now on it dies of every list
        failed = servers(home, "refresh")
        assert failed.returncode == 1
        assert failed.stderr.startswith("portico: shelf exited with code 1; ")


def test_a_list_that_cannot_be_refreshed_fails_the_command_and_stays(
    home: Path, words: Path
) -> None:
    with Standing(home, "--name", "shelf", "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.reachable()
        words.unlink()  # it answers lists with an error
        failed = servers(home, "refresh")
        assert failed.returncode == 1
        assert failed.stderr == "portico: shelf failed to answer tools/list: fetch failed\n"
        assert wrap.tools() == ["lists", "announce", "one"]
        words.write_text("two")
        assert servers(home, "refresh").returncode == 0
        assert wrap.tools() == ["two"]


def test_the_hangup_signal_refreshes(home: Path, words: Path) -> None:
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
        assert len(wrap.tools()) == 3
        words.write_text("lists two")
        wrap.process.send_signal(signal.SIGHUP)
        assert wrap.receive()["method"] == "notifications/tools/list_changed"
        assert wrap.tools() == ["lists", "two"]


def test_asked_to_refresh_at_the_start_it_asks_before_anybody_calls(
    home: Path, words: Path
) -> None:
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
    words.write_text("lists two")
    with Standing(home, "--refresh", "--", *shelf(words)) as wrap:
        wrap.initialize()
        until(lambda: wrap.tools() == ["lists", "two"], "the list stays old")


def test_the_socket_is_for_this_user_alone(home: Path, words: Path) -> None:
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.reachable()
        assert stat.S_IMODE(wrap.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(wrap.socket.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "the request is not"),
        (b"[]", "the request is not"),
        (b'{"do": 1}', "the request is not"),
        (b"\xff\x00", "the request is not"),
        (b'{"do": "sta\xfftus"}', "the request is not"),
        (b'{"do": "status", "\xed\xa0\x80": 1}', "the request is not"),
        (b"[" * 60_000, "the request is not"),
        (b'{"do": "' + b"x" * 1000 + b'"}', "unknown command 'xxx"),
        (b'{"do": "stop"}', "unknown command 'stop'; commands: status, refresh"),
        (b"x" * 200_000, "the line is longer than 65536 bytes"),
    ],
)
def test_what_is_no_order_is_an_error_and_hurts_nothing(
    line: bytes, why: str, home: Path, words: Path
) -> None:
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.reachable()
        with reached(wrap) as talk:
            told = answer(talk, line)
            assert told["ok"] is False
            assert str(told["error"]).startswith(why)
        with reached(wrap) as talk:
            assert [answer(talk, b'{"do": "status"}')["ok"] for _ in range(3)] == [True] * 3
        assert wrap.said("one") == "one"
        assert wrap.stderr() == ""


def test_those_who_come_and_say_nothing_take_no_place_from_others(home: Path, words: Path) -> None:
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.reachable()
        mute = [socket.socket(socket.AF_UNIX) for _ in range(40)]
        for one in mute:
            one.connect(str(wrap.socket))
        assert wrap.said("one") == "one"
        assert servers(home, "list").returncode == 0
        for one in mute:
            one.close()


def test_the_oldest_connection_that_has_sent_nothing_makes_room(home: Path, words: Path) -> None:
    with Standing(home, "--", *shelf(words)) as wrap, ExitStack() as open_ones:
        wrap.initialize()
        wrap.reachable()
        speakers = [open_ones.enter_context(reached(wrap)) for _ in range(15)]
        for speaker in speakers:
            assert answer(speaker, b'{"do": "status"}')["ok"] is True
        mute = open_ones.enter_context(reached(wrap))
        late = open_ones.enter_context(reached(wrap))
        assert mute.recv(1) == b""
        for speaker in (late, *speakers):
            assert answer(speaker, b'{"do": "status"}')["ok"] is True


def test_connections_that_are_idle_make_room_if_none_is_silent(home: Path, words: Path) -> None:
    with Standing(home, "--", *shelf(words)) as wrap, ExitStack() as open_ones:
        wrap.initialize()
        wrap.reachable()
        idle = [open_ones.enter_context(reached(wrap)) for _ in range(16)]
        for one in idle:
            assert answer(one, b'{"do": "status"}')["ok"] is True
        assert answer(idle[0], b'{"do": "status"}')["ok"] is True
        late = open_ones.enter_context(reached(wrap))
        assert answer(late, b'{"do": "status"}')["ok"] is True
        assert idle[1].recv(1) == b""  # it has been idle for longest


def test_what_a_killed_process_left_is_cleared_away(home: Path, words: Path) -> None:
    left = []
    for _ in range(2):
        with Standing(home, "--", *shelf(words)) as wrap:
            wrap.initialize()
            wrap.reachable()
            wrap.process.kill()
            left.append(wrap.socket)
            until(lambda: wrap.process.poll() is not None, "it does not die")
            assert wrap.socket.exists()
    assert not left[0].exists(), "the next to start leaves it"
    assert servers(home, "list").returncode == 1
    assert not left[1].exists(), "who asks leaves it"


def test_a_path_too_long_for_a_socket_is_no_hindrance(tmp_path: Path, words: Path) -> None:
    home = tmp_path / ("deep" * 20) / ("deeper" * 20)
    with Standing(home, "--name", "shelf", "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.reachable()
        assert servers(home, "list").stdout.startswith("shelf  ")
        assert wrap.stderr() == ""


def test_without_a_place_for_its_socket_it_serves_and_says_so(home: Path, words: Path) -> None:
    (home / "state").mkdir(parents=True)
    (home / "state" / "control").write_text("in the way")
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
        until(lambda: "`portico servers` cannot reach this process" in wrap.stderr(), "no report")
        assert wrap.said("one") == "one"


_STRANGER = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setuid(65534)
asker = socket.socket(socket.AF_UNIX)
asker.connect(sys.argv[2])
print("connected")
try:
    asker.sendall(b'{"do": "status"}\\n')
    print(asker.recv(100))
except ConnectionError:
    print(b"")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_somebody_else_gets_no_answer_even_through_an_open_door(home: Path, words: Path) -> None:
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
        wrap.reachable()
        wrap.socket.chmod(0o666)
        wrap.socket.parent.chmod(0o755)
        asking = [sys.executable, "-c", _STRANGER, str(wrap.socket.parent), wrap.socket.name]
        asked = subprocess.run(asking, capture_output=True, check=False, timeout=WAIT_S)
        assert (asked.stdout, asked.stderr) == (b"connected\nb''\n", b"")
        assert servers(home, "list").returncode == 0


@pytest.mark.slow
def test_a_process_that_does_not_answer_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "state" / "control"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as deaf:
        monkeypatch.chdir(folder)
        deaf.bind("1.sock")
        deaf.listen()
        shown = servers(home, "list")
    assert shown.returncode == 1
    assert shown.stderr == "portico: process 1: no response within 5 s\n"


def test_it_is_reached_while_its_server_cannot_be_had(home: Path) -> None:
    with Standing(
        home, "--name", "bad", "--http", "127.0.0.1:0", "--", *bad("stdio", "exits")
    ) as w:
        w.reachable()
        failed = servers(home, "refresh", "bad", "--json")
        assert failed.returncode == 1
        assert "no API key" in json.loads(failed.stdout)[0]["error"]
        assert servers(home, "list").returncode == 0
        w.process.terminate()
