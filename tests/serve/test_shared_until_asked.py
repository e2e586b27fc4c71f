"""A server is shared by all clients until it asks; then each that can be asked has its own.

No question, answer or root of one client reaches another.
"""

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import asking, bad
from tests.serve.gateway import Gateway, command, written
from tests.support.soak import times
from tests.wrap.faults import Wrap, command_line, descendants, until
from tests.wrap.talk import Web, web

ABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
PERSON: dict[str, dict[str, Any]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {
        "role": "assistant",
        "model": "m",
        "content": {"type": "text", "text": "hi"},
    },
}
LEGACY = bad("stdio", "plain")
FOREVER_MS = 120_000
SHARED = "several clients share this server"


def roots_of(name: str) -> dict[str, dict[str, Any]]:
    """The answers of a person whose only folder has this name."""
    return {**PERSON, "roots/list": {"roots": [{"uri": f"file:///home/{name}"}]}}


@contextmanager
def serving(home: Path, **servers: list[str]) -> Iterator[Gateway]:
    """A gateway that has the lists of all these servers."""
    entries = {name: command(words) for name, words in servers.items()}
    config = written(home / "portico.toml", entries, gateway={"expose": "all"})
    with Gateway(home, config) as gateway:
        assert until(lambda: all(it["tools"] for it in gateway.status().values()))
        yield gateway


def processes(portico: Wrap) -> int:
    """How many servers run for it."""
    return sum("tests/rigs/" in command_line(pid) for pid in descendants(portico.process.pid))


def busy(client: Web) -> bytes:
    """A call that the server is at, and will be for long; its id."""
    id = client.start("it__slow", meta={"progressToken": "busy"}, ms=FOREVER_MS, steps=1200)
    client.next("notifications/progress")
    return id


@pytest.mark.parametrize("words", [LEGACY, asking("mcp")], ids=["legacy", "both"])
def test_windows_share_a_server_that_never_asked(tmp_path: Path, words: list[str]) -> None:
    for number in range(2):
        with serving(tmp_path, it=words) as portico, ExitStack() as stack:
            clients = [stack.enter_context(web(portico.port, ABLE)) for _ in range(3)]
            clients.append(stack.enter_context(web(portico.port)))
            clients.append(stack.enter_context(web(portico.port, modern=True)))
            assert len({client.call("it__pid") for client in clients}) == 1
            assert until(lambda: processes(portico) == 1)
            # The first lists came from a process in the other era; the next start knows better.
            is_other = number == 0 and words != LEGACY
            assert portico.status()["it"]["starts"] == (2 if is_other else 1)


@pytest.mark.parametrize("words", [LEGACY, asking("mcp")], ids=["legacy", "both"])
def test_the_first_question_is_answered_and_ends_the_sharing(
    tmp_path: Path, words: list[str]
) -> None:
    with (
        serving(tmp_path, it=words) as portico,
        web(portico.port, ABLE, answers=PERSON) as one,
        web(portico.port, ABLE, answers=PERSON) as two,
        web(portico.port) as plain,
        web(portico.port) as other,
    ):
        common = one.call("it__pid")
        assert two.call("it__pid") == plain.call("it__pid") == common
        assert "Ada" in one.call("it__ask")
        pids = {client.call("it__pid") for client in (one, two, plain)}
        assert len(pids) == 3
        assert common not in pids
        assert other.call("it__pid") == plain.call("it__pid")
        assert "Ada" in two.call("it__ask")
        assert len(one.heard("elicitation/create")) == len(two.heard("elicitation/create")) == 1
        assert until(lambda: processes(portico) == 3)


def test_the_first_question_is_refused_while_another_client_has_a_call(tmp_path: Path) -> None:
    with (
        serving(tmp_path, it=LEGACY) as portico,
        web(portico.port, ABLE, answers=PERSON) as one,
        web(portico.port, ABLE, answers=PERSON) as two,
    ):
        busy(one)
        assert SHARED in json.loads(two.call("it__ask"))["message"]
        assert not one.heard("elicitation/create")
        assert not two.heard("elicitation/create")
        # From now on it has a process of its own.
        assert json.loads(two.call("it__ask")) == PERSON["elicitation/create"]
        assert not one.heard("elicitation/create")


def test_a_question_of_a_cancelled_call_reaches_nobody(tmp_path: Path) -> None:
    with (
        serving(tmp_path, it=LEGACY) as portico,
        web(portico.port, ABLE, answers=PERSON) as one,
        web(portico.port, ABLE, answers=PERSON) as two,
    ):
        meta = {"progressToken": "begun"}
        asked = one.start("it__ask", meta=meta, mark="of one", after_ms=2000)
        one.next("notifications/progress")
        one.notify("notifications/cancelled", b'{"requestId":%s}' % asked)
        assert two.call("it__slow", ms=3000, steps=1) == "slept 3000 ms"
        assert not two.heard("elicitation/create")
        assert two.call("it__pid")
        # The question has ended the sharing.
        with web(portico.port) as plain:
            assert two.call("it__pid") != plain.call("it__pid")


def test_a_server_that_asked_is_known_after_a_restart(tmp_path: Path) -> None:
    for number in range(2):
        with (
            serving(tmp_path, it=LEGACY) as portico,
            web(portico.port, ABLE, answers=PERSON) as one,
            web(portico.port, ABLE, answers=PERSON) as two,
        ):
            assert (one.call("it__pid") == two.call("it__pid")) is (number == 0)
            one.call("it__ask")


def test_roots_reach_no_process_of_another_client(tmp_path: Path) -> None:
    with (
        serving(tmp_path, it=LEGACY) as portico,
        web(portico.port, ABLE, answers=roots_of("one")) as one,
        web(portico.port, ABLE, answers=roots_of("two")) as two,
        web(portico.port) as plain,
    ):
        shared = plain.call("it__pid")
        assert "home/one" in one.call("it__ask", kind="roots")
        assert "home/two" in two.call("it__ask", kind="roots")
        assert shared not in {plain.call("it__pid"), two.call("it__pid"), one.call("it__pid")}
        assert "refused" in plain.call("it__ask", kind="roots") or "support" in plain.call(
            "it__ask", kind="roots"
        )


def test_a_client_that_moves_keeps_its_subscriptions_and_its_log_level(tmp_path: Path) -> None:
    note = {"uri": "test://note"}
    with (
        serving(tmp_path, it=LEGACY) as portico,
        web(portico.port, ABLE, answers=PERSON, path="/servers/it/mcp") as one,
    ):
        one.ask("logging/setLevel", {"level": "error"})
        one.ask("resources/subscribe", note)
        one.call("ask")
        assert until(lambda: one.call("update") == "told")
        one.next("notifications/resources/updated")
        one.call("log")
        levels = [json.loads(raw)["level"] for raw in one.heard("notifications/message")]
        assert levels == ["error", "critical", "alert", "emergency"]


def test_a_change_of_roots_is_no_question_of_a_shared_server(tmp_path: Path) -> None:
    with (
        serving(tmp_path, it=LEGACY) as portico,
        web(portico.port, ABLE) as one,
        web(portico.port, ABLE) as two,
    ):
        assert one.call("it__pid") == two.call("it__pid")
        one.notify("notifications/roots/list_changed", b"{}")
        assert two.call("it__count", method="notifications/roots/list_changed") == "0"


@pytest.mark.parametrize("sharing", ["shared", "per-client"])
def test_the_config_decides_whatever_a_server_asks(tmp_path: Path, sharing: str) -> None:
    entry = command(LEGACY, sharing=sharing)
    config = written(tmp_path / "portico.toml", {"it": entry}, gateway={"expose": "all"})
    with (
        Gateway(tmp_path, config) as portico,
        web(portico.port, ABLE, answers=roots_of("one")) as one,
        web(portico.port, ABLE, answers=roots_of("two")) as two,
        web(portico.port) as plain,
    ):
        clients = (one, two, plain)
        for _ in range(2):
            pids = {client.call("it__pid") for client in clients}
            assert len(pids) == (1 if sharing == "shared" else 3)
            said = one.call("it__ask", kind="roots")
            assert ("home/one" in said) is (sharing == "per-client")
        assert not two.heard("roots/list")


def test_a_shared_server_that_dies_at_its_first_question_is_started_again(tmp_path: Path) -> None:
    with (
        serving(tmp_path, it=LEGACY) as portico,
        web(portico.port, ABLE, answers=PERSON) as one,
        web(portico.port, ABLE, answers=PERSON) as two,
    ):
        shared = int(one.call("it__pid"))
        asked = one.start("it__ask", meta={"progressToken": "begun"}, after_ms=FOREVER_MS)
        one.next("notifications/progress")
        os.kill(shared, signal.SIGKILL)
        assert one.error(asked)
        assert json.loads(two.call("it__ask")) == PERSON["elicitation/create"]
        assert json.loads(one.call("it__ask")) == PERSON["elicitation/create"]
        assert len(one.heard("elicitation/create")) == len(two.heard("elicitation/create")) == 1


class _Window(threading.Thread):
    """A client with calls of its own, whose every question must be one of them."""

    def __init__(self, portico: Wrap, name: str, calls: int, servers: list[str]) -> None:
        super().__init__(daemon=True)
        self.marks = name
        self.wrong: list[str] = []
        self.answered = self.refused = 0
        self._port, self._calls, self._servers = portico.port, calls, servers
        self._random = random.Random(name)

    def run(self) -> None:
        """Call one server after the other, each time with a mark of its own."""
        with web(self._port, ABLE, answers=PERSON) as client:
            for number in range(self._calls):
                server = self._random.choice(self._servers)
                mark = f"{self.marks}-{number}"
                if self._random.random() < 0.5:
                    said = client.call(f"{server}__echo", text=mark)
                    self._check(said == mark, said)
                else:
                    after_ms = self._random.randrange(3)
                    said = client.call(f"{server}__ask", mark=mark, after_ms=after_ms)
                    self.refused += SHARED in said
                    self.answered += said == json.dumps(
                        PERSON["elicitation/create"], separators=(",", ":")
                    )
            for raw in client.heard("elicitation/create"):
                message = json.loads(raw)["message"]
                self._check(f" {self.marks}-" in message, message)

    def _check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.wrong.append(what)


@pytest.mark.soak
def test_no_question_reaches_the_wrong_window(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    calls, servers = times(400, 10_000), [f"s{number}" for number in range(4)]
    with serving(tmp_path, **{name: bad("stdio", "plain") for name in servers}) as portico:
        windows = [_Window(portico, f"w{n}", calls // 4, servers) for n in range(4)]
        for window in windows:
            window.start()
        for window in windows:
            window.join()
    assert [window.wrong for window in windows] == [[]] * 4
    answered = sum(window.answered for window in windows)
    refused = sum(window.refused for window in windows)
    assert answered > calls // 3
    assert refused <= 4 * len(windows)  # only what was in flight when a server first asked
    record_property(
        "soak", f"{calls} calls, {answered} questions answered, {refused} refused, 0 misplaced"
    )
