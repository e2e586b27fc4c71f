"""Windows close or are killed, and owners stop in order: no running call fails."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.edge.windows.windows import GONE_S, NOTE, Street, Window, text_of
from tests.support.messages import PREFIX
from tests.wrap.faults import alive
from tests.wrap.faults import until as comes

ERAS = ("2025-11-25", "2026-07-28")


def closes(window: Window) -> None:
    window.close_input()


def terminated(window: Window) -> None:
    window.process.send_signal(signal.SIGTERM)


def killed(window: Window) -> None:
    window.process.kill()


LEAVES = pytest.mark.parametrize("leaves", [closes, terminated, killed])
ORDERS = pytest.mark.parametrize("by_signal", [False, True])


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    with Street(tmp_path) as street:
        yield street


def stopped(street: Street, by_signal: bool) -> int:
    """Stop the owner in order; return its pid."""
    if not by_signal:
        return street.stop()
    street.signal(signal.SIGTERM)
    return street.owner()


def moved(window: Window, old: int) -> int:
    """Wait until another owner serves the window; return its pid."""
    while (owner := window.owner()) == old:
        pass
    return owner


# The window that started the gateway closes.


@LEAVES
@pytest.mark.parametrize("era", ERAS)
def test_calls_of_others_complete_when_the_first_window_leaves(
    leaves: Callable[[Window], None], era: str, street: Street
) -> None:
    first, one, two = (street.window(era) for _ in range(3))
    held = [one.hold("one"), two.hold("two")]
    owner = one.owner()
    leaves(first)
    first.process.wait()
    street.release()
    for window, name, id in zip((one, two), ("one", "two"), held, strict=True):
        assert text_of(window.answer_to(id)) == f"held {name}"
    assert [one.owner(), two.owner()] == [owner] * 2
    assert street.pids_of("owns") == [owner]


@LEAVES
def test_a_question_is_answered_when_the_first_window_leaves(
    leaves: Callable[[Window], None], street: Street
) -> None:
    first, other = street.opened(2)
    id = other.call("ask")
    question = other.next("elicitation/create")
    leaves(first)
    first.process.wait()
    other.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    assert text_of(other.answer_to(id)) == "decline"


@LEAVES
def test_no_request_of_many_is_lost_when_the_first_window_leaves(
    leaves: Callable[[Window], None], street: Street
) -> None:
    first, one, two = street.opened(3)
    ids: dict[Window, list[int]] = {one: [], two: []}
    for number in range(300):
        for window in (one, two):
            ids[window].append(window.call("echo", text=str(number)))
        if number == 150:
            leaves(first)
    for window, asked in ids.items():
        for number, id in enumerate(asked):
            assert text_of(window.answer_to(id)) == str(number)
        assert window.received_before() == []


@pytest.mark.slow
def test_windows_come_and_go_and_nothing_is_left(street: Street) -> None:
    windows = street.opened(3)
    (owner,) = street.pids_of("owns")
    for _ in range(5):
        windows.append(street.window())
        assert windows.pop(0).leave() == 0
        assert {window.owner() for window in windows} == {owner}
    for window in windows:
        assert window.leave() == 0
    assert comes(lambda: not alive({owner}), GONE_S)
    assert street.left() == []
    assert len(street.pids_of("ends")) == 8
    assert street.pids_of("owns") == street.pids_of("leaves") == [owner]


# The owner stops in order.


@ORDERS
@pytest.mark.parametrize("era", ERAS)
def test_an_owner_that_stops_finishes_its_calls_and_the_next_does_later_ones(
    by_signal: bool, era: str, street: Street
) -> None:
    one, two = street.window(era), street.window(era)
    held = [one.hold("one"), two.hold("two")]
    old = stopped(street, by_signal)
    late = [window.call("who") for window in (one, two)]
    os.kill(old, signal.SIGUSR1)
    for window, name, id in zip((one, two), ("one", "two"), held, strict=True):
        assert text_of(window.answer_to(id)) == f"held {name}"
    did = [int(text_of(window.answer_to(id))) for window, id in zip((one, two), late, strict=True)]
    new = moved(one, old)
    assert moved(two, old) == new
    assert set(did) <= {old, new}
    assert street.pids_of("owns") == [old, new]
    assert comes(lambda: not alive({old}), GONE_S)
    assert street.pids_of("leaves") == [old]


def test_who_comes_while_an_owner_stops_has_the_next(street: Street) -> None:
    one = street.window()
    held = one.hold("one")
    old = street.stop()
    late = street.window()
    new = late.owner()
    assert new != old
    os.kill(old, signal.SIGUSR1)
    assert text_of(one.answer_to(held)) == "held one"
    assert moved(one, old) == new


@ORDERS
def test_a_question_of_an_owner_that_stops_is_still_answered_there(
    by_signal: bool, street: Street
) -> None:
    window = street.window()
    id = window.call("ask")
    question = window.next("elicitation/create")
    old = stopped(street, by_signal)
    window.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    assert text_of(window.answer_to(id)) == "decline"
    moved(window, old)


def test_a_call_is_taken_back_at_an_owner_that_stops(street: Street) -> None:
    window = street.window()
    params = {"requestId": window.hold("one")}
    old = street.stop()
    window.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    street.wait_for("drops one")
    new = moved(window, old)
    assert street.pids_of("owns") == [old, new]


def test_a_client_that_leaves_while_the_owner_stops_has_its_last_call_done(street: Street) -> None:
    window = street.window()
    held = window.hold("one")
    old = street.stop()
    new = street.window().owner()  # by now the first window knows that the old owner stops
    late = window.call("who")
    window.close_input()
    os.kill(old, signal.SIGUSR1)
    assert text_of(window.answer_to(held)) == "held one"
    assert text_of(window.answer_to(late)) == str(new)
    assert window.ended() == 0


@ORDERS
def test_no_request_of_many_is_lost_or_answered_twice(by_signal: bool, street: Street) -> None:
    windows = street.opened(2)
    ids: dict[Window, list[int]] = {window: [] for window in windows}
    for number in range(300):
        for window in windows:
            ids[window].append(window.call("echo", text=str(number)))
        if number == 150:
            old = stopped(street, by_signal)
    for window, asked in ids.items():
        for number, id in enumerate(asked):
            assert text_of(window.answer_to(id)) == str(number)
        assert [m for m in window.received_before() if "id" in m] == []
    assert len({moved(window, old) for window in windows}) == 1


def test_listeners_and_subscriptions_go_on_at_the_next(street: Street) -> None:
    legacy, modern = street.window(), street.window(ERAS[1])
    assert "result" in legacy.ask("resources/subscribe", {"uri": NOTE})
    wanted = {"resourceSubscriptions": [NOTE]}
    id = modern.begin("subscriptions/listen", {"notifications": wanted})
    modern.next("notifications/subscriptions/acknowledged")
    old = street.stop()
    assert comes(lambda: not alive({old}), GONE_S)
    # Changes before a listener has moved are not replayed, so wait for the move first.
    assert modern.owner() == legacy.owner() != old
    legacy.result_text("change")
    assert legacy.next("notifications/resources/updated")["params"]["uri"] == NOTE
    heard = modern.next("notifications/resources/updated")
    assert heard["params"]["_meta"][PREFIX + "subscriptionId"] == id
    assert [message for message in modern.received_before() if "id" in message] == []


def test_calls_that_outlast_the_drain_are_answered_by_the_window(street: Street) -> None:
    window = street.window(DRAIN_S="0.2")
    id = window.hold("one")
    old = street.stop()
    street.wait_for("drops one")
    assert window.answer_to(id)["error"]["data"] == {"kind": "closed"}
    moved(window, old)
    assert window.stderr() == ""
