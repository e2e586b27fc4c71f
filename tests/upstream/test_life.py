"""The life of a connection is a table; the drawing in the docs is that table."""

import pytest

from portico.upstream.life import TABLE, Event, State, drawing, next_state
from tests.support.shared import ROOT

PAGE = ROOT / "docs" / "wrap-connections.md"


def test_every_state_can_be_reached_from_the_first() -> None:
    reached, todo = {State.DISCONNECTED}, [State.DISCONNECTED]
    while todo:
        here = todo.pop()
        new = {next for (state, _), next in TABLE.items() if state is here} - reached
        reached |= new
        todo += new
    assert reached == set(State)


def test_every_state_leads_back_to_the_first() -> None:
    back: set[State] = {State.DISCONNECTED}
    for _ in State:
        back |= {state for (state, _), next in TABLE.items() if next in back}
    assert back == set(State)


def test_every_event_means_something_somewhere() -> None:
    assert {event for _, event in TABLE} == set(Event)


def test_whatever_is_open_can_be_lost_and_closed() -> None:
    for state in (State.CONNECTED, State.ACTIVE, State.IDLE):
        assert next_state(state, Event.LOST) is State.FAILED
        assert next_state(state, Event.CLOSED) is State.DISCONNECTED


def test_only_one_without_calls_is_closed_for_being_idle() -> None:
    tired = {state for state, event in TABLE if event is Event.TIRED}
    assert tired == {State.CONNECTED, State.IDLE}


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.DISCONNECTED, Event.CALLED),
        (State.CONNECTING, Event.NEEDED),
        (State.ACTIVE, Event.OPENED),
        (State.FAILED, Event.LOST),
    ],
)
def test_what_is_not_in_the_table_does_not_happen(state: State, event: Event) -> None:
    with pytest.raises(KeyError):
        next_state(state, event)


def test_the_drawing_has_an_arrow_for_every_row() -> None:
    lines = drawing().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    active --> idle: last call answered" in lines
    assert sum("-->" in line for line in lines) == len(TABLE) + 1


def test_the_documentation_shows_the_table_as_it_is() -> None:
    assert f"```mermaid\n{drawing()}\n```" in PAGE.read_text()
