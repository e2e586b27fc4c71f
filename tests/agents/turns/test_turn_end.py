"""Every turn ends: cancelled, out of time, or killed with all its descendants."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from portico.agents.turns.delegation import StopGrace
from portico.agents.turns.run_turn import run_turn, turn_of
from portico.core.config.agents_schema import AgentTimeouts
from portico.core.state.background import Background
from tests.agents.turns.rig import (
    QUICK,
    WAIT_S,
    FakePort,
    is_alive,
    launch,
    log_of,
    permission,
    prompt,
)
from tests.support.backoff import until
from tests.support.clock import Clock


async def cancelled(turn: "asyncio.Task[Any]") -> None:
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(turn, WAIT_S)


async def test_cancel_asks_the_agent_first(tmp_path: Path) -> None:
    log, ready = tmp_path / "log", tmp_path / "ready"
    steps = [{"say": "half"}, {"touch": str(ready)}, {"wait_for_cancel": True}]
    work = turn_of(launch(*steps, script={"log": str(log)}), prompt(tmp_path), FakePort())
    turn = asyncio.create_task(work.run())
    await until(ready.exists)
    await cancelled(turn)
    assert log_of(log, "client")[-1] == {
        "jsonrpc": "2.0",
        "method": "session/cancel",
        "params": {"sessionId": "session-1"},
    }
    assert log_of(log, "agent")[-1]["result"] == {"stopReason": "cancelled"}
    assert work.outcome().text == "half"
    assert work.outcome().session_id == "session-1"


@pytest.mark.parametrize("idle_s", [0.2, 60])
async def test_the_usage_of_a_stopped_turn_is_known(tmp_path: Path, idle_s: float) -> None:
    ready = tmp_path / "ready"
    counts = {"inputTokens": 3, "outputTokens": 4}
    steps = [{"touch": str(ready)}, {"wait_for_cancel": True, "usage": counts}]
    agent = launch(*steps, timeouts=AgentTimeouts(idle=idle_s))
    work = turn_of(agent, prompt(tmp_path), FakePort())
    turn = asyncio.create_task(work.run())
    await until(ready.exists)
    if idle_s < 1:
        assert (await turn).usage.tokens == 7
    else:
        await cancelled(turn)
        assert work.outcome().usage.tokens == 7


async def test_open_permissions_are_answered_with_cancelled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    port = FakePort(hangs=True)
    agent = launch(permission(), {"wait_for_cancel": True}, script={"log": str(log)})
    work = turn_of(agent, prompt(tmp_path), port)
    turn = asyncio.create_task(work.run())
    await asyncio.wait_for(port.asked.wait(), WAIT_S)
    await cancelled(turn)
    answers = [one["result"] for one in log_of(log, "client") if "result" in one]
    assert answers == [{"outcome": {"outcome": "cancelled"}}]
    assert port.withdrawn.is_set()
    assert work.outcome().permissions == {"cancelled": 1}


@pytest.mark.parametrize("signals", [{}, {"ignore_sigterm": True}])
async def test_cancel_kills_an_agent_that_ignores_everything_with_its_descendants(
    tmp_path: Path, signals: dict[str, bool]
) -> None:
    pid_file, own = tmp_path / "pid", tmp_path / "own"
    script = {"ignore_eof": True, "pid_file": str(own), **signals}
    agent = launch(
        {"grandchild": str(pid_file)},
        {"hang": True},
        script=script,
        grace=StopGrace(cancel_s=0.1, stdin_s=0.1, term_s=0.1),
    )
    turn = asyncio.create_task(run_turn(agent, prompt(tmp_path), FakePort()))
    await until(lambda: pid_file.exists() and pid_file.read_text() != "")
    pids = [int(file.read_text()) for file in (pid_file, own)]
    assert all(map(is_alive, pids))
    await cancelled(turn)
    assert not any(map(is_alive, pids))


async def test_a_turn_that_is_cancelled_again_still_leaves_nothing_behind(tmp_path: Path) -> None:
    own = tmp_path / "own"
    agent = launch(
        {"hang": True},
        script={"pid_file": str(own), "ignore_eof": True, "ignore_sigterm": True},
        grace=StopGrace(cancel_s=WAIT_S, stdin_s=WAIT_S, term_s=0.5),
    )
    turn = asyncio.create_task(run_turn(agent, prompt(tmp_path), FakePort()))
    await until(lambda: own.exists() and own.read_text() != "")
    pid = int(own.read_text())
    for _ in range(3):
        turn.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(turn, WAIT_S)
    await until(lambda: not is_alive(pid))


async def test_cancel_during_the_start_ends_the_process(tmp_path: Path) -> None:
    own = tmp_path / "own"
    script = {"answers": {"initialize": "hang"}, "pid_file": str(own)}
    turn = asyncio.create_task(run_turn(launch(script=script), prompt(tmp_path), FakePort()))
    await until(lambda: own.exists() and own.read_text() != "")
    pid = int(own.read_text())
    await cancelled(turn)
    assert not is_alive(pid)


async def test_the_descendants_of_a_finished_agent_end_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    endings = Background()
    await run_turn(
        launch({"grandchild": str(pid_file)}), prompt(tmp_path), FakePort(), endings=endings
    )
    await asyncio.wait_for(endings.wait(), WAIT_S)
    assert not is_alive(int(pid_file.read_text()))


async def test_an_idle_agent_is_stopped(tmp_path: Path) -> None:
    agent = launch(
        {"say": "so far"},
        {"hang": True},
        timeouts=AgentTimeouts(idle=0.3),
        grace=StopGrace(cancel_s=0.1, stdin_s=0.1, term_s=0.1),
    )
    outcome = await run_turn(agent, prompt(tmp_path), FakePort())
    assert outcome.stop_reason == "idle_timeout"
    assert outcome.error == "fake was stopped: it sent nothing for 0.3 s"
    assert outcome.text == "so far"
    assert outcome.is_error


async def test_an_agent_that_never_stops_is_stopped(tmp_path: Path) -> None:
    forever = [{"flood": 200, "text": "x"}] * 20
    outcome = await run_turn(
        launch(*forever, {"wait_for_cancel": True}, timeouts=AgentTimeouts(hard=0.5)),
        prompt(tmp_path),
        FakePort(),
    )
    assert outcome.stop_reason == "hard_timeout"
    assert outcome.error == "fake was stopped: it ran for more than 0.5 s"


async def test_an_open_question_suspends_the_idle_timeout(tmp_path: Path, clock: Clock) -> None:
    port = FakePort(hangs=True)
    agent = launch(permission(), {"say": "went on"}, timeouts=AgentTimeouts(idle=100))
    turn = asyncio.create_task(run_turn(agent, prompt(tmp_path), port))
    await asyncio.wait_for(port.asked.wait(), WAIT_S)
    await clock.advance(290)
    assert not turn.done()
    await clock.advance(20)  # the deadline of the question
    outcome = await turn
    assert outcome.permissions == {"expired": 1}
    assert outcome.stop_reason == "end_turn"
    assert '"optionId": "no"' in outcome.text
    assert outcome.text.endswith("went on")


async def test_prompts_of_one_session_wait_for_each_other(tmp_path: Path) -> None:
    from portico.agents.turns.acp_connection import AcpConnection

    connection = AcpConnection(launch(grace=QUICK), str(tmp_path))
    await connection.open()
    try:
        session = (await connection.new_session(str(tmp_path), []))["sessionId"]
        block = {"type": "text", "text": "go"}
        both = [connection.prompt(session, [block]) for _ in range(2)]
        results = await asyncio.wait_for(asyncio.gather(*both), WAIT_S)
    finally:
        await connection.close()
    assert [one["stopReason"] for one in results] == ["end_turn", "end_turn"]
