"""Terminals: bounded, and ended with their descendants."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from portico.agents.turns.terminals import MAX_TERMINALS, Terminals
from portico.core.model.errors import McpError
from portico.upstream.process.family import Family
from tests.agents.turns.rig import WAIT_S, is_alive
from tests.support.backoff import until


@asynccontextmanager
async def terminals() -> AsyncIterator[Terminals]:
    opened = Terminals(dict(os.environ), lambda: None, Family())
    try:
        yield opened
    finally:
        await opened.close()


async def test_output_beyond_the_limit_loses_its_beginning_at_a_character(tmp_path: Path) -> None:
    async with terminals() as opened:
        code = "print('ä' * 1000 + 'end', end='')"
        argv = [sys.executable, "-X", "utf8", "-c", code]
        id = await opened.create(argv, {}, str(tmp_path), 10)
        await asyncio.wait_for(opened.wait(id), WAIT_S)
        output = opened.output(id)
    assert output["output"] == "äääend"
    assert output["truncated"] is True


async def test_a_command_can_be_killed(tmp_path: Path) -> None:
    async with terminals() as opened:
        id = await opened.create(["sleep", "1000"], {}, str(tmp_path), None)
        assert opened.output(id) == {"output": "", "truncated": False}
        opened.kill(id)
        status = await asyncio.wait_for(opened.wait(id), WAIT_S)
    assert status == {"exitCode": None, "signal": "SIGKILL"}


async def test_there_are_only_so_many_terminals(tmp_path: Path) -> None:
    async with terminals() as opened:
        for _ in range(MAX_TERMINALS):
            id = await opened.create(["cat"], {}, str(tmp_path), None)
        with pytest.raises(McpError, match="too many terminals"):
            await opened.create(["cat"], {}, str(tmp_path), None)
        await opened.release(id)
        assert await opened.create(["cat"], {}, str(tmp_path), None)


async def test_closing_ends_commands_that_ignore_sigterm(tmp_path: Path) -> None:
    async with terminals() as opened:
        script = "trap '' TERM; echo $$; sleep 1000 & wait; wait"
        id = await opened.create(["sh", "-c", script], {}, str(tmp_path), None)
        await until(lambda: opened.output(id)["output"] != "")
        pid = int(opened.output(id)["output"])
    assert not is_alive(pid)


async def test_a_command_in_a_terminal_runs_below_an_agent() -> None:
    code = "from portico.upstream.process.family import gateways_above; print(gateways_above())"
    async with terminals() as opened:
        id = await opened.create([sys.executable, "-c", code], {}, ".", None)
        await opened.wait(id)
        assert opened.output(id)["output"] == f"[{os.getpid()}]\n"
