"""The life of a connection is a table; the drawing in the docs is that table."""

import asyncio
import time

import pytest

from portico.core.model.errors import TargetError
from portico.upstream.connections.backoff import BackoffLimits, CircuitBreaker
from portico.upstream.connections.connection import UpstreamConnection
from portico.upstream.connections.connection_state import TABLE, ConnectionEvent, ConnectionState
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.session import UpstreamSession
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.wire import Failure
from tests.rigs.running import bad
from tests.support.clock import Clock
from tests.support.shared import ROOT

PAGE = ROOT / "docs" / "use" / "wrap-connections.md"


def test_every_state_can_be_reached_from_the_first() -> None:
    reached, todo = {ConnectionState.DISCONNECTED}, [ConnectionState.DISCONNECTED]
    while todo:
        here = todo.pop()
        new = {next for (state, _), next in TABLE.items() if state is here} - reached
        reached |= new
        todo += new
    assert reached == set(ConnectionState)


def test_every_state_leads_back_to_the_first() -> None:
    back: set[ConnectionState] = {ConnectionState.DISCONNECTED}
    for _ in ConnectionState:
        back |= {state for (state, _), next in TABLE.items() if next in back}
    assert back == set(ConnectionState)


def test_every_event_means_something_somewhere() -> None:
    assert {event for _, event in TABLE} == set(ConnectionEvent)


def test_whatever_is_open_can_be_lost_and_closed() -> None:
    for state in (ConnectionState.CONNECTED, ConnectionState.ACTIVE, ConnectionState.IDLE):
        assert TABLE[state, ConnectionEvent.LOST] is ConnectionState.FAILED
        assert TABLE[state, ConnectionEvent.CLOSED] is ConnectionState.DISCONNECTED


def test_only_one_without_calls_is_closed_for_being_idle() -> None:
    tired = {state for state, event in TABLE if event is ConnectionEvent.IDLE_TIMEOUT}
    assert tired == {ConnectionState.CONNECTED, ConnectionState.IDLE}


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (ConnectionState.DISCONNECTED, ConnectionEvent.CALLED),
        (ConnectionState.CONNECTING, ConnectionEvent.NEEDED),
        (ConnectionState.ACTIVE, ConnectionEvent.OPENED),
        (ConnectionState.FAILED, ConnectionEvent.LOST),
    ],
)
def test_what_is_not_in_the_table_does_not_happen(
    state: ConnectionState, event: ConnectionEvent
) -> None:
    with pytest.raises(KeyError):
        TABLE[state, event]


def drawing() -> str:
    """The table as a Mermaid diagram, as the documentation shows it."""
    lines = ["stateDiagram-v2", "    [*] --> disconnected"]
    lines += [f"    {old} --> {new}: {event}" for (old, event), new in TABLE.items()]
    return "\n".join(lines)


def test_the_drawing_has_an_arrow_for_every_row() -> None:
    lines = drawing().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    active --> idle: last call answered" in lines
    assert sum("-->" in line for line in lines) == len(TABLE) + 1


def test_the_documentation_shows_the_table_as_it_is() -> None:
    assert f"```mermaid\n{drawing()}\n```" in PAGE.read_text()


class Nobody:
    """Receives all events of a connection, and ignores them."""

    def list_changed(self, session: UpstreamSession, kind: str) -> None: ...

    def updated(self, session: UpstreamSession, uri: str, params: bytes) -> None: ...

    def asked(self, what: frozenset[str]) -> None: ...

    def starting(self) -> None: ...

    def opened(self, connection: UpstreamConnection, session: UpstreamSession) -> None: ...

    is_listed = False


def child_connection(idle_s: float | None = None) -> UpstreamConnection:
    policy = UpstreamPolicy(era="legacy", idle_s=idle_s)
    breaker = CircuitBreaker("child", BackoffLimits(), time.monotonic)
    return UpstreamConnection(
        Command(tuple(bad("stdio", "plain"))), policy, breaker, Nobody(), Nobody()
    )


async def connecting(connection: UpstreamConnection) -> "asyncio.Task[UpstreamSession]":
    """A session that is being opened."""
    opening = asyncio.create_task(connection.session())
    await asyncio.sleep(0)  # the task of the caller begins, then that of the connection
    await asyncio.sleep(0)
    assert connection.state is ConnectionState.CONNECTING
    return opening


async def test_a_line_goes_through_the_states_as_its_calls_do(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ConnectionState] = []

    class Steps(dict[tuple[ConnectionState, ConnectionEvent], ConnectionState]):
        def __getitem__(self, step: tuple[ConnectionState, ConnectionEvent]) -> ConnectionState:
            seen.append(super().__getitem__(step))
            return seen[-1]

    monkeypatch.setattr("portico.upstream.connections.connection.TABLE", Steps(TABLE))
    connection = child_connection(idle_s=60)
    try:
        connection.begin()
        await connection.session()
        connection.end(answered=True)
        await clock.advance(60)
    finally:
        await connection.close()
    assert " ".join(seen) == "connecting connected active idle disconnected"


async def test_a_connection_ends_once_however_many_say_so() -> None:
    """Several requests may meet the same lost session, the last when the next has begun."""
    connection = child_connection()
    try:
        session = await connection.session()
        failure = Failure(server="child", why="has ended the session", kind="session")
        session.exchange.lost(failure)
        assert connection.state is ConnectionState.FAILED
        session.exchange.lost(failure)
        opening = await connecting(connection)
        session.exchange.lost(failure)
        assert await opening is connection.open_session
        session.exchange.lost(failure)
        assert connection.open_session is not None
    finally:
        await connection.close()


async def test_a_closed_line_begins_nothing() -> None:
    connection = child_connection()
    opening = await connecting(connection)
    await connection.close()
    for asked in (opening, connection.session()):
        with pytest.raises(TargetError, match="is being shut down"):
            await asked
    assert connection.state is ConnectionState.DISCONNECTED
