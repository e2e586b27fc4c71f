"""Agents that are one command per prompt."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.agents.turns.command_turn import filled
from portico.agents.turns.delegation import AgentLaunch
from portico.agents.turns.failures import AgentFailed
from portico.agents.turns.run_turn import run_turn, turn_of
from portico.core.config.agents_schema import AgentTimeouts
from tests.agents.turns.rig import QUICK, WAIT_S, FakePort, is_alive, prompt
from tests.support.backoff import until


def cli(code: str, *args: str, **options: Any) -> AgentLaunch:
    """An agent that is a Python program."""
    argv = (sys.executable, "-I", "-S", "-c", code, *args)
    return AgentLaunch(name="tool", kind="cli", argv=argv, grace=QUICK, **options)


READ = "import sys; sys.stdout.write(sys.stdin.read().upper())"
SHOW = "import sys; print(sys.argv[1:], repr(sys.stdin.read()))"


async def test_the_prompt_is_its_input_and_its_output_the_result(tmp_path: Path) -> None:
    block = {"type": "text", "text": "context"}
    port = FakePort()
    outcome = await run_turn(cli(READ), prompt(tmp_path, "do it", blocks=(block,)), port)
    assert outcome.text == "CONTEXT\n\nDO IT\n"
    assert (outcome.stop_reason, outcome.is_error) == ("end_turn", False)
    assert port.shown[-1] == "printed: DO IT"
    assert outcome.timings.turn_s is not None


async def test_the_prompt_can_be_an_argument_but_never_an_option(tmp_path: Path) -> None:
    agent = cli(SHOW, "-p", "{prompt}", "--text={prompt}")
    outcome = await run_turn(agent, prompt(tmp_path, "--yolo"), FakePort())
    assert outcome.text == "['-p', ' --yolo', '--text=--yolo'] ''\n"


@given(st.text(), st.lists(st.sampled_from(["-p", "{prompt}", "--x={prompt}", "a"])))
def test_a_prompt_adds_no_arguments(text: str, args: list[str]) -> None:
    argv = filled(("agent", *args), text)
    assert len(argv) == len(args) + 1
    assert argv[0] == "agent"
    for given_arg, arg in zip(args, argv[1:], strict=True):
        assert given_arg != "{prompt}" or not arg.startswith("-")


async def test_a_failure_keeps_the_output_and_shows_stderr(tmp_path: Path) -> None:
    code = "import sys; print('half'); print('Error: no key', file=sys.stderr); sys.exit(2)"
    outcome = await run_turn(cli(code), prompt(tmp_path), FakePort())
    assert outcome.text == "half\n"
    assert outcome.error == "tool exited with code 2; last output:\n  Error: no key"
    assert outcome.stop_reason == "failed"


async def test_a_result_of_100_megabytes_is_cut(tmp_path: Path) -> None:
    code = "import sys\nfor _ in range(100): sys.stdout.write('x' * (1 << 20))\nprint('END')"
    outcome = await run_turn(cli(code), prompt(tmp_path), FakePort())
    assert outcome.text.endswith("xEND\n")
    assert "characters were cut here" in outcome.text
    assert len(outcome.text) < (1 << 20) + 100


async def test_a_character_that_is_split_between_reads_stays_whole(tmp_path: Path) -> None:
    code = "import os\nfor b in 'aä€😀'.encode(): os.write(1, bytes([b]))\nos.write(1, b'\\xff')"
    outcome = await run_turn(cli(code), prompt(tmp_path), FakePort())
    assert outcome.text == "aä€😀\ufffd"


async def test_one_that_hangs_is_stopped_with_its_descendants(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()"
    )
    agent = cli(code, timeouts=AgentTimeouts(hard=0.5))
    outcome = await run_turn(agent, prompt(tmp_path), FakePort())
    assert outcome.stop_reason == "hard_timeout"
    assert not is_alive(int(outcome.text))


async def test_it_can_be_cancelled_and_keeps_its_output(tmp_path: Path) -> None:
    code = "import signal; print('begun', flush=True); signal.pause()"
    port = FakePort()
    work = turn_of(cli(code), prompt(tmp_path), port)
    turn = asyncio.create_task(work.run())
    await until(lambda: "printed: begun" in port.shown)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(turn, WAIT_S)
    assert work.outcome().text == "begun\n"


async def test_it_can_neither_continue_nor_start_without_a_command(tmp_path: Path) -> None:
    with pytest.raises(AgentFailed, match="tool cannot continue a session"):
        await run_turn(cli(READ), prompt(tmp_path, session_id="s"), FakePort())
    missing = AgentLaunch(name="tool", kind="cli", argv=("no-such-tool",))
    with pytest.raises(AgentFailed, match="tool cannot start: there is no command 'no-such-tool'"):
        await run_turn(missing, prompt(tmp_path), FakePort())


async def test_a_prompt_that_is_too_long_for_an_argument_is_explained(tmp_path: Path) -> None:
    agent = cli(SHOW, "{prompt}")
    with pytest.raises(AgentFailed, match="Argument list too long"):
        await run_turn(agent, prompt(tmp_path, "x" * (4 << 20)), FakePort())


async def test_a_port_that_fails_ends_the_command(tmp_path: Path) -> None:
    class BrokenPort(FakePort):
        async def progress(self, text: str) -> None:
            raise RuntimeError("the lease is lost")

    with pytest.raises(RuntimeError, match="the lease is lost"):
        await run_turn(cli("import signal; signal.pause()"), prompt(tmp_path), BrokenPort())
