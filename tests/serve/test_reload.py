"""A running gateway follows its config file and signals, and drops no call on the way."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.rigs.running import bad, shelf
from tests.serve.gateway import Entry, Gateway, Pipes, command, result_of, text_in, written
from tests.support.running import WAIT_S
from tests.support.web import HEADERS, listen, mirrored
from tests.wrap.faults import alive, command_line, descendants, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-reload")]


class Place:
    """A folder with a config of servers whose tools are words in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.config = folder / "portico.toml"

    def shelf(self, name: str, words: str) -> Entry:
        """A server with these tools."""
        (self.folder / name).write_text(words)
        return command(shelf(self.folder / name))

    def write(self, **servers: Entry) -> None:
        """The config from now on; all tools are listed."""
        written(self.config, servers, gateway={"expose": "all"})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.write(one=made.shelf("one", "first lists"), slow=command(bad("stdio", "plain")))
    with Pipes(made.home, made.config) as gateway:
        gateway.initialize()
        assert until(lambda: not any(one["pending"] for one in gateway.status().values()))
        # Both are stored, for clients of either era: what is not by the end would be news.
        catalogs = made.home / "cache" / "catalogs"
        assert until(lambda: len(list(catalogs.glob("*.catalog"))) == 4)
    return made


CHANGED = "notifications/tools/list_changed"


def listed(gateway: Pipes) -> set[str]:
    """What there is, the many tools of `slow` apart."""
    return {name for name in gateway.tools() if not name.startswith("slow__")}


@contextmanager
def running(place: Place, *options: str) -> Iterator[Pipes]:
    """A gateway that knew its servers from before, and has asked them again."""
    with Pipes(place.home, place.config, *options) as gateway:
        gateway.initialize()
        gateway.said("refresh_tools")
        assert len(pids(gateway)) == 2
        yield gateway


def pids(gateway: Pipes) -> set[int]:
    """The processes of its servers."""
    kin = alive(descendants(gateway.owner))
    return {pid for pid in kin if "/rigs/" in command_line(pid)}


def busy(status: dict[str, Entry]) -> bool:
    """True while the slow server has a call to answer."""
    return any(one["busy"] for one in status["slow"]["connections"])


def test_a_server_is_added_changed_and_removed_while_a_call_runs(place: Place) -> None:
    slow = command(bad("stdio", "plain"))
    with running(place) as gateway:
        before, asked = pids(gateway), gateway.said("one__lists")
        held = gateway.start("tools/call", {"name": "slow__slow", "arguments": {"ms": 4000}})
        one, two = place.shelf("one", "first lists"), place.shelf("two", "second")
        place.write(one=one, two=two, slow=slow)
        assert until(lambda: listed(gateway) == {"one__first", "one__lists", "two__second"})
        # It is not asked again, nor started again: it went on undisturbed.
        assert gateway.said("one__lists") == asked
        changed = place.shelf("another", "changed")
        place.write(one=changed, two=two)
        assert until(lambda: listed(gateway) == {"one__changed", "two__second"})
        assert not any(name.startswith("slow__") for name in gateway.tools())
        assert gateway.said("one__changed") == "changed"
        # Its server has left the config meanwhile, and finishes what it had.
        assert "slept 4000 ms" in str(gateway.answer_to(held))
        assert until(lambda: not pids(gateway) & before), "what left the config still runs"
    assert "changed; config reloaded" in gateway.stderr()


def test_a_broken_file_is_reported_and_the_old_config_stays(place: Place) -> None:
    with running(place) as gateway:
        whole = place.config.read_text()
        for broken, words in (
            ('[servers.one\ncommand = "x"', "portico.toml:1"),
            ('[servers.one]\ncomand = "x"', "servers.one.comand"),
        ):
            place.config.write_text(broken)
            assert until(lambda expected=words: expected in gateway.stderr())
            assert gateway.said("one__first") == "first"
        place.config.unlink()
        assert until(lambda: "was deleted; keeping the previous config" in gateway.stderr())
        assert gateway.said("one__first") == "first"
        place.config.write_text(whole.replace("[servers.one]", "[servers.uno]"))
        assert until(lambda: listed(gateway) == {"uno__first", "uno__lists"})


def test_what_is_odd_in_a_new_file_or_has_to_wait_is_told(place: Place) -> None:
    with running(place) as gateway:
        servers = {"one": place.shelf("one", "first lists"), "slow": command(bad("stdio", "plain"))}
        settings = {"expose": "search", "pinned": ["nobody__first"]}
        written(place.config, servers, gateway=settings)
        assert until(lambda: "gateway.expose changed; restart to apply" in gateway.stderr())
        assert "gateway.pinned[0]: there is no server nobody" in gateway.stderr()
        assert "one__first" in gateway.tools()


def test_a_new_server_that_hangs_holds_up_neither_the_file_nor_others(place: Place) -> None:
    with running(place) as gateway:
        one, slow = place.shelf("one", "first lists"), command(bad("stdio", "plain"))
        place.write(one=one, slow=slow, hangs=command(["sleep", "1000"]))
        assert until(lambda: "hangs" in gateway.status())
        place.write(one=one, slow=slow, two=place.shelf("two", "second"))
        assert until(lambda: "two__second" in gateway.tools(), within_s=12)
        assert "hangs" not in gateway.status()


def test_what_has_left_the_config_does_not_outlive_the_gateway(place: Place) -> None:
    with running(place, "--drain", "1") as gateway:
        kin = pids(gateway)
        gateway.start("tools/call", {"name": "slow__slow", "arguments": {"ms": 100_000}})
        assert until(lambda: busy(gateway.status()))
        place.write(one=place.shelf("one", "first lists"))
        assert until(lambda: "slow" not in gateway.status())
        assert alive(kin) == kin
    assert not alive(kin)


def test_a_file_that_is_only_touched_changes_nothing(place: Place) -> None:
    with running(place) as gateway:
        before, asked = pids(gateway), gateway.said("one__lists")
        place.config.write_text(place.config.read_text() + "\n# a comment\n")
        assert until(lambda: "changed; config reloaded" in gateway.stderr())
        assert gateway.said("one__lists") == asked
        assert pids(gateway) == before
        assert gateway.received_before() == []


def test_a_hang_up_has_all_servers_asked_again(place: Place) -> None:
    with running(place) as gateway:
        (place.folder / "one").write_text("first lists later")
        gateway.process.send_signal(signal.SIGHUP)
        assert until(lambda: "one__later" in gateway.tools())
        assert gateway.said("one__later") == "later"


def test_a_client_is_told_of_what_a_new_file_brings(place: Place) -> None:
    with running(place) as gateway:
        one, two = place.shelf("one", "first lists"), place.shelf("two", "second")
        place.write(one=one, two=two, slow=command(bad("stdio", "plain")))
        news: list[dict[str, Any]] = []
        tools: list[str] = []
        while "two__second" not in tools:  # the first news may be of those that were there before
            while not any(one.get("method") == CHANGED for one in news):
                news += gateway.received_before() or [gateway.receive()]
            news = []
            tools = gateway.tools()


def test_who_listens_at_the_door_of_a_server_that_is_replaced_is_let_go(place: Place) -> None:
    with Gateway(place.home, place.config) as served:
        listening = HTTPConnection("127.0.0.1", served.port, timeout=WAIT_S)
        message = listen(toolsListChanged=True)
        headers = {**HEADERS, **mirrored(message)}
        listening.request("POST", "/servers/one/mcp", json.dumps(message), headers)
        stream = listening.getresponse()
        assert b"acknowledged" in stream.readline() + stream.readline()
        place.write(one=place.shelf("other", "words"))
        assert b'"result"' in stream.read()
        listening.close()


SLOW = {"name": "slow__slow", "arguments": {"ms": 1500}}


def test_a_term_signal_lets_a_running_call_finish(place: Place) -> None:
    with running(place) as gateway:
        held = gateway.start("tools/call", SLOW)
        assert until(lambda: busy(gateway.status()))
        gateway.process.terminate()
        assert "slept 1500 ms" in str(gateway.answer_to(held))
        assert gateway.process.wait(WAIT_S) == 0


def test_a_term_signal_lets_a_running_call_finish_over_http(place: Place) -> None:
    answers: list[dict[str, Any]] = []
    with Gateway(place.home, place.config, "--drain", "20") as served:
        # Its client cannot take its leave any more.
        with suppress(OSError), served.client() as client:
            assert until(lambda: "slow__slow" in str(client.ask("tools/list")))
            calling = Thread(target=lambda: answers.append(client.ask("tools/call", SLOW)))
            calling.start()
            assert until(lambda: busy(served.status()))
            served.process.terminate()
            calling.join(WAIT_S)
            served.process.wait(WAIT_S)
        assert served.process.returncode == 0
    assert "slept 1500 ms" in text_in(result_of(answers[0]))
