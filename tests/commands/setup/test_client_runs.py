"""Real clients run with the entry that Portico writes: their model calls a tool behind it.

Qwen Code alone in `make test`, and every client that can be installed here in `make soak`.
"""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from portico.commands.cli.main import main
from tests.commands.setup.client_runs import RUNS
from tests.commands.setup.samples import on_system
from tests.commands.setup.test_real_clients import CLOCK, SERVER
from tests.support.model_server import calls, model_server, says
from tests.support.node import environment
from tests.support.running import WAIT_S
from tests.support.soak import IS_SOAK

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("real-clients")]

CLIENTS = list(RUNS) if IS_SOAK else ["qwen"]


async def said(command: list[str], folder: Path, environ: Mapping[str, str]) -> str:
    """All that a client writes until it ends."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environ, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    try:
        async with asyncio.timeout(4 * WAIT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return output.decode(errors="replace")


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_real_client_calls_a_tool_by_the_written_entry(
    client: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    home, project, run = tmp_path / "home", tmp_path / "project", RUNS[client]
    on_system(monkeypatch, home)
    project.mkdir()
    (tmp_path / "clock.py").write_text(CLOCK)
    config = tmp_path / "portico.toml"
    server = SERVER.format(python=sys.executable, file=tmp_path / "clock.py")
    config.write_text(f'[gateway]\nexpose = "search"\n{server}')  # whatever suits the client
    calling = calls(f"{run.prefix}execute_tool", name="clock__now", arguments={})
    async with model_server({"clock": [calling, says("It is over.")]}) as model:
        run.settings(home, model)
        assert main(["install", client, "--config", str(config), "--yes"]) == 0
        environ = {**environment(home), "NO_COLOR": "1", **run.environ(model)}
        output = await said([*run.program(), *run.command(model)], project, environ)
        told = json.dumps(model.requests)
    assert "noon" in told, f"{output}\n{model.unexpected}"
    assert "It is over." in output
    (log,) = home.rglob("serve.log")  # Codex does not pass PORTICO_HOME on
    assert f"serves {config}" in log.read_text()
    record_property("soak", "its model called a tool behind Portico")
