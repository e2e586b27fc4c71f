"""The owner is killed: the windows start another, and every call gets one response."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from portico.core.protocol.codec import Envelope
from portico.edge.transport.pipes import FileWriter
from portico.edge.windows.bridge import Bridge
from portico.edge.windows.joining import Attached
from portico.edge.windows.owner_connection import NO_ANSWER, OwnerConnection
from portico.edge.windows.session_state import SessionState, TrackedRequest
from portico.edge.windows.window import watch_for_silence
from tests.edge.windows.windows import GONE_S, NOTE, Street, Window, text_of
from tests.support.messages import PREFIX
from tests.support.running import WAIT_S, initialize_params
from tests.support.soak import times
from tests.wrap.faults import alive
from tests.wrap.faults import until as comes

ERAS = ("2025-11-25", "2026-07-28")
LISTS = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    with Street(tmp_path) as street:
        yield street


def is_closed(answer: dict[str, Any]) -> bool:
    error = answer["error"]
    return (error["code"], error["data"]) == (-32603, {"kind": "closed"})


def listen(window: Window) -> int:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": [NOTE]}
    return window.begin("subscriptions/listen", {"notifications": wanted})


@pytest.mark.parametrize("era", ERAS)
def test_calls_under_way_fail_once_and_later_ones_do_not(era: str, street: Street) -> None:
    others = [street.window(era) for _ in range(3)]
    held = [window.hold(f"of {window.pid}") for window in others]
    old = street.kill()
    assert all(is_closed(w.answer_to(id)) for w, id in zip(others, held, strict=True))
    (new,) = {window.owner() for window in others}
    assert street.pids_of("owns") == [old, new]
    again = [window.hold(f"again of {window.pid}") for window in others]
    for window, id in zip(others, again, strict=True):
        window.result_text("release", name=f"again of {window.pid}")
        assert "result" in window.answer_to(id)


@pytest.mark.slow
def test_windows_abandon_an_owner_that_hangs_and_serve_by_themselves(street: Street) -> None:
    windows = [street.window(SILENCE_S="1") for _ in range(2)]
    held = [window.hold(f"of {window.pid}") for window in windows]
    owner = street.owner()
    street.signal(signal.SIGSTOP)
    try:
        listed = [window.begin("tools/list") for window in windows]
        for window, call, asked in zip(windows, held, listed, strict=True):
            assert is_closed(window.answer_to(call))
            assert "result" in window.answer_to(asked)
            assert window.owner() == window.pid
            why = f"process {owner}: no response within 5 s"
            assert f"cannot join the running gateway: {why}" in window.stderr()
            assert window.stderr().count("starting separate servers") == 1
    finally:
        os.kill(owner, signal.SIGCONT)
    for window in windows:
        street.wait_for(f"drops of {window.pid}")


async def test_an_owner_that_says_it_is_there_is_not_left(tmp_path: Path) -> None:
    class Lively(OwnerConnection):
        pings = 0

        def send(self, line: bytes) -> None:
            self.pings += 1
            (pong,) = self.internal_calls.values()
            if self.pings == 5:
                self.is_closed = True
            self.internal_calls.clear()
            pong.set_result(NO_ANSWER)

        def pause_reading(self) -> None: ...

        def resume_reading(self) -> None: ...

    bridge = Bridge(FileWriter(1), asyncio.Event(), max_line=100)
    ours, theirs = socket.socketpair()
    fd = ours.fileno()
    connection = Lively(Attached(ours, b"", {}), bridge, 0)
    connection.pending[b"1"] = TrackedRequest(b"1")
    await asyncio.wait_for(watch_for_silence(bridge, connection, 0.001), WAIT_S)
    assert connection.pings == 5
    assert not bridge.disconnected.is_set()
    os.close(fd)
    theirs.close()


def test_what_is_asked_while_nobody_owns_it_is_answered_by_the_next(street: Street) -> None:
    one, two = street.opened(2)
    street.kill()
    ids = [[window.call("echo", text=str(n)) for n in range(50)] for window in (one, two)]
    for window, asked in zip((one, two), ids, strict=True):
        for number, id in enumerate(asked):
            answer = window.answer_to(id)
            # Only requests that the killed owner may have received may fail.
            if "error" in answer:
                assert is_closed(answer)
            else:
                assert answer["result"]["content"][0]["text"] == str(number)
    assert one.owner() == two.owner()


def test_a_legacy_session_goes_on_with_its_level_and_its_subscriptions(street: Street) -> None:
    one, two = street.opened(2)
    for window in (one, two):
        assert "result" in window.ask("logging/setLevel", {"level": "debug"})
        assert "result" in window.ask("resources/subscribe", {"uri": NOTE})
    assert "result" in two.ask("resources/unsubscribe", {"uri": NOTE})
    one.received_before()
    street.kill()
    assert one.owner() == two.owner()
    for window in (one, two):
        window.result_text("murmur")
        assert window.next("notifications/message")["params"]["data"] == "psst"
    two.result_text("change")
    assert one.next("notifications/resources/updated")["params"]["uri"] == NOTE
    for window in (one, two):
        window.result_text("echo", text="")
        assert [m for m in window.received_before() if "updated" in m.get("method", "")] == []


def test_a_modern_listener_goes_on(street: Street) -> None:
    one, two = (street.window(ERAS[1]) for _ in range(2))
    ids = [listen(window) for window in (one, two)]
    for window in (one, two):
        window.next("notifications/subscriptions/acknowledged")
    street.kill()
    assert one.owner() == two.owner()
    two.result_text("change")
    for window, id in zip((one, two), ids, strict=True):
        heard = window.next("notifications/resources/updated")
        assert heard["params"]["_meta"][PREFIX + "subscriptionId"] == id
        assert window.received_before() == [], "a second acknowledgement, or an answer"


def announced(window: Window) -> list[str]:
    """The lists that were announced as changed, all of them."""
    for _ in range(2):  # the first answer may come before the last announcement
        window.owner()
    told = [message.get("method", "") for message in window.received_before()]
    return [method for method in told if method in LISTS]


@pytest.mark.parametrize("era", ERAS)
def test_only_lists_that_the_next_owner_lists_otherwise_are_announced(
    era: str, street: Street
) -> None:
    reads, idle = street.window(era), street.window(era)
    for window in (reads, idle):
        if window.is_modern:
            wanted = {"toolsListChanged": True, "resourcesListChanged": True}
            window.begin("subscriptions/listen", {"notifications": wanted})
            window.next("notifications/subscriptions/acknowledged")
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        assert "result" in reads.answer_to(reads.begin(method))
    for _ in range(2):
        street.kill()
        assert announced(reads) == announced(idle) == []
    street.book.with_name("book.tools").write_text("another")
    street.kill()
    changed = "notifications/tools/list_changed"
    assert reads.next(changed)
    assert announced(reads) == announced(idle) == []
    # It has still read the old list; once it has read the new one, that is the one to compare.
    street.kill()
    assert reads.next(changed)
    assert "another" in str(reads.answer_to(reads.begin("tools/list")))
    street.kill()
    assert announced(reads) == []


def test_each_page_that_was_read_last_is_compared_and_one_of_a_batch_counts_as_changed() -> None:
    state = SessionState()
    page = Envelope(result=Raw(b'{"tools":[]}'))

    def read(cursor: str, line: bool = True) -> None:
        params = b'{"cursor":"%b"}' % cursor.encode() if cursor else b"{}"
        sent = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%b}' % params
        state.record_result(TrackedRequest(b"1", "tools/list", sent if line else b""), page)

    read("")
    read("next")
    assert [one.params for one in state.lists] == [b"{}", b'{"cursor":"next"}']
    assert not any(one.differs(page) for one in state.lists)
    assert all(one.differs(Envelope(result=Raw(b"{}"))) for one in state.lists)
    assert all(one.differs(NO_ANSWER) for one in state.lists)
    read("")
    assert [one.params for one in state.lists] == [b"{}"]
    read("", line=False)
    (unknown,) = state.lists
    assert (unknown.params, unknown.differs(page)) == (b"{}", True)


def test_a_question_of_a_dead_owner_is_taken_back_and_its_answer_dropped(street: Street) -> None:
    bridge = street.window()
    id = bridge.call("ask")
    old = bridge.next("elicitation/create")
    street.kill()
    assert is_closed(bridge.answer_to(id))
    taken_back = bridge.next("notifications/cancelled")
    assert taken_back["params"]["requestId"] == old["id"]
    second = bridge.call("ask")
    new = bridge.next("elicitation/create")
    assert new["id"] != old["id"]
    late = {"jsonrpc": "2.0", "id": old["id"], "result": {"action": "accept", "content": {}}}
    bridge.send(late)
    bridge.send({"jsonrpc": "2.0", "id": new["id"], "result": {"action": "decline"}})
    assert bridge.answer_to(second)["result"]["content"][0]["text"] == "decline"


@pytest.mark.slow
@pytest.mark.soak
def test_owners_are_killed_again_and_again(
    street: Street, record_property: Callable[[str, object], None]
) -> None:
    rounds = times(5, 50)
    windows = [street.window(ERAS[number % 2]) for number in range(4)]
    listening = [(w, listen(w)) for w in windows if w.is_modern]
    for window, _ in listening:
        window.next("notifications/subscriptions/acknowledged")
    for _ in range(rounds):
        (now,) = {window.owner() for window in windows}
        held = [(window, window.hold(f"{now} of {window.pid}")) for window in windows]
        assert street.kill() == now
        late = [(window, window.call("echo", text="late")) for window in windows]
        assert all(is_closed(window.answer_to(id)) for window, id in held)
        for window, id in late:
            answer = window.answer_to(id)
            assert is_closed(answer) if "error" in answer else text_of(answer) == "late"
        windows[0].result_text("change")
        for window, id in listening:
            heard = window.next("notifications/resources/updated")
            assert heard["params"]["_meta"][PREFIX + "subscriptionId"] == id
        assert [window.result_text("echo", text="on") for window in windows] == ["on"] * 4
    assert len(street.pids_of("owns")) == rounds + 1
    assert [window.leave() for window in windows] == [0] * 4
    assert comes(lambda: not alive(street.owners()), GONE_S)
    assert street.left() == []
    assert [window.stderr() for window in windows] == [""] * 4
    record_property("soak", f"{rounds} owners killed, {rounds * 4} calls failed once, 0 left")


@pytest.mark.slow
def test_owners_that_answer_are_not_given_up_however_soon_they_die(street: Street) -> None:
    windows = street.opened(2)
    for _ in range(10):
        (now,) = {window.owner() for window in windows}
        assert street.kill() == now
    assert len({window.owner() for window in windows}) == 1
    assert len(street.pids_of("owns")) == 11
    assert [window.stderr() for window in windows] == ["", ""]


def test_a_client_wants_from_each_owner_what_the_first_one_gave_it(street: Street) -> None:
    one, two = street.opened(2)
    first = street.kill()
    second = one.owner()
    assert two.owner() == second
    assert street.kill() == second
    third = one.owner()
    assert two.owner() == third
    for owner in (second, third):
        assert owner in street.pids_of(f"lets in {first}")


def test_what_may_be_asked_twice_is_asked_again(street: Street) -> None:
    bridge = street.opening()
    assert "result" in bridge.ask("ping")  # it runs, before any handshake
    street.signal(signal.SIGSTOP)
    shaken = bridge.start("initialize", initialize_params(ERAS[0]))
    listed = bridge.begin("tools/list")
    old = street.kill()
    assert "result" in bridge.answer_to(shaken)
    assert "result" in bridge.answer_to(listed)
    assert bridge.owner() != old


def test_what_the_dead_owner_never_read_goes_to_the_next(street: Street) -> None:
    bridge = street.window()
    street.signal(signal.SIGSTOP)
    # More than the socket's buffer: the last ones have not left the bridge.
    ids = [bridge.call("echo", text="x" * 100_000) for _ in range(8)]
    street.kill()
    answers = [bridge.answer_to(id) for id in ids]
    assert is_closed(answers[0])
    assert "result" in answers[-1]


def test_who_cannot_start_an_owner_says_why_and_leaves_nobody_without_an_answer(
    street: Street,
) -> None:
    first, bridge = street.window(), street.window(FAILS="1")
    held = bridge.hold("one")
    assert first.leave() == 0
    street.signal(signal.SIGSTOP)
    listed = bridge.begin("tools/list")
    street.kill()
    assert is_closed(bridge.answer_to(held))
    assert is_closed(bridge.answer_to(listed))
    assert bridge.ended() == 1
    assert bridge.stderr() == "portico: the config is gone\n"
    assert [name for name in street.left() if name.endswith(".lock")] == []


def test_an_owner_that_cannot_begin_ends_the_windows_that_wait_for_it(street: Street) -> None:
    windows = [street.opening(FAILS="1") for _ in range(3)]
    assert [window.ended() for window in windows] == [1] * 3
    assert [window.stderr() for window in windows] == ["portico: the config is gone\n"] * 3
    assert street.left() == []
