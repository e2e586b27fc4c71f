"""The owner leaves in good order: what runs is finished, what is new goes to the next."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.messages import PREFIX
from tests.windows.windows import NOTE, Street, Window, text_of

ERAS = ("2025-11-25", "2026-07-28")


def closes(window: Window) -> None:
    window._in.close()


def terminated(window: Window) -> None:
    window.process.send_signal(signal.SIGTERM)


LEAVES = pytest.mark.parametrize("leaves", [closes, terminated])


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    with Street(tmp_path) as street:
        yield street


def moved(window: Window, owner: Window) -> None:
    """Wait until somebody else serves it."""
    while window.owner() == owner.pid:
        pass


@LEAVES
@pytest.mark.parametrize("era", ERAS)
def test_running_calls_are_finished_by_the_old_and_new_ones_done_by_the_next(
    leaves: Callable[[Window], None], era: str, street: Street
) -> None:
    owner, one, two = (street.window(era) for _ in range(3))
    held = [owner.hold("own"), one.hold("one"), two.hold("two")]
    leaves(owner)
    for window in (one, two):
        moved(window, owner)
    assert one.owner() == two.owner()
    assert owner.process.poll() is None, "it waits for what it runs"
    owner.release()
    for window, name, id in zip((owner, one, two), ("own", "one", "two"), held, strict=True):
        assert text_of(window.answer_to(id)) == f"held {name}"
    assert owner.ended() == 0
    assert one.says("echo", text="on") == "on"
    assert street.said("owns") == [owner.pid, one.owner()]


@LEAVES
def test_a_question_of_the_old_owner_is_still_answered_there(
    leaves: Callable[[Window], None], street: Street
) -> None:
    owner, bridge = street.opened(2)
    id = bridge.call("ask")
    question = bridge.next("elicitation/create")
    leaves(owner)
    moved(bridge, owner)
    bridge.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    assert text_of(bridge.answer_to(id)) == "decline"
    assert owner.ended() == 0
    assert bridge.owner() == bridge.pid


@LEAVES
def test_no_request_of_many_is_lost_or_answered_twice(
    leaves: Callable[[Window], None], street: Street
) -> None:
    owner, one, two = street.opened(3)
    ids: dict[Window, list[int]] = {one: [], two: []}
    for number in range(300):
        for window in (one, two):
            ids[window].append(window.call("echo", text=str(number)))
        if number == 150:
            leaves(owner)
    for window, asked in ids.items():
        for number, id in enumerate(asked):
            assert text_of(window.answer_to(id)) == str(number)
        assert [m for m in window.received_before() if "id" in m] == []
    assert owner.ended() == 0
    assert one.owner() == two.owner() != owner.pid


def test_listeners_and_subscriptions_go_on_at_the_next(street: Street) -> None:
    owner, legacy, modern = street.window(), street.window(), street.window(ERAS[1])
    assert "result" in legacy.ask("resources/subscribe", {"uri": NOTE})
    wanted = {"resourceSubscriptions": [NOTE]}
    id = modern.begin("subscriptions/listen", {"notifications": wanted})
    modern.next("notifications/subscriptions/acknowledged")
    assert owner.leave() == 0
    # What changes before a listener has come over is not made up for: it must be there first.
    assert modern.owner() == legacy.owner() != owner.pid
    legacy.says("change")
    assert legacy.next("notifications/resources/updated")["params"]["uri"] == NOTE
    heard = modern.next("notifications/resources/updated")
    assert heard["params"]["_meta"][PREFIX + "subscriptionId"] == id
    assert [message for message in modern.received_before() if "id" in message] == []


def test_calls_that_outlast_the_drain_are_answered_by_the_bridge(street: Street) -> None:
    owner, bridge = street.window(DRAIN_S="0.2"), street.window(DRAIN_S="0.2")
    id = bridge.hold("one")
    assert owner.leave() == 0
    street.told("drops one")
    assert bridge.answer_to(id)["error"]["data"] == {"kind": "closed"}
    assert bridge.owner() == bridge.pid
    assert owner.stderr() == ""


@pytest.mark.slow
def test_windows_come_and_go_and_nothing_is_left(street: Street) -> None:
    windows = street.opened(3)
    for _ in range(5):
        windows.append(street.window())
        assert windows.pop(0).leave() == 0
        assert len({window.owner() for window in windows}) == 1
    for window in windows:
        assert window.leave() == 0
    assert street.left() == []
    assert len(street.said("ends")) == 8
    assert len(street.said("owns")) == len(street.said("leaves"))
