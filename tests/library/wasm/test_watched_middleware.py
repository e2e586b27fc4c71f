"""`run --watch` and `--grant` of sandboxed middleware."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from portico.edge.client.memory_client import memory_client
from portico.upstream.wires.child_wire import Command
from tests.library.components.test_faithful import Run
from tests.library.wasm import building, hosting
from tests.library.wasm.test_middleware import ADDED, guest
from tests.library.wasm.test_middleware_chain import ECHO
from tests.wrap.faults import portico_command, until
from tests.wrap.talk import Client, web

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("watched-wasm")]
TRIPLE = {"name": "triple", "arguments": {"tool": "echo"}}
every_era = pytest.mark.parametrize("era", ["modern", "legacy"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "calc.py").write_text(ECHO)
    for built in (guest(), noop()):
        asyncio.run(hosting.compiled(hosting.settings(built, tmp_path)))
    return tmp_path


def noop() -> Path:
    return building.javascript("noop.js", building.WIT / "own", "noop")


def save(built: Path, folder: Path) -> None:
    """Replace the middleware as a compiler does."""
    new = folder / "guard.new"
    shutil.copy(built, new)
    os.replace(new, folder / "guard.wasm")


def tools(client: Client) -> str:
    return client.ask("tools/list").decode()


def test_saved_middleware_is_reloaded_and_a_broken_one_is_not(folder: Path) -> None:
    save(noop(), folder)
    files = (str(folder / "guard.wasm"), str(folder / "calc.py"))
    with Run(folder / "home", *files, "--watch") as running, web(running.port) as client:
        assert '"secret"' in tools(client)
        save(guest(), folder)
        assert until(lambda: '"triple"' in tools(client)), running.stderr()
        assert '"secret"' not in tools(client)
        assert b"1 2 3" in client.ask("tools/call", TRIPLE)
        (folder / "guard.wasm").write_bytes(b"\0asm broken")
        kept = "guard.wasm changed, but was not reloaded"
        assert until(lambda: kept in running.stderr()), running.stderr()
        assert b"1 2 3" in client.ask("tools/call", TRIPLE)
        save(noop(), folder)
        assert until(lambda: '"secret"' in tools(client)), running.stderr()
        assert client.call("secret") == "secret"


@every_era
async def test_it_asks_only_if_that_is_granted(folder: Path, era: Any) -> None:
    save(guest(), folder)
    files = (str(folder / "guard.wasm"), str(folder / "calc.py"))
    answers: Any = {"elicit": lambda _: {}, "sample": None, "roots": None, "log_level": ""}
    for options, said in (
        ((), "refused: elicit is not granted"),
        (("--grant", "guard:questions=elicit"), '{"action":"accept","content":{}}'),
    ):
        words = portico_command(folder / "home", "run", *files, *options)
        async with memory_client(Command(tuple(words)), era=era, **answers) as client:
            assert set(ADDED) <= {tool.name for tool in await client.list_tools()}
            assert (await client.call_tool("asked", {})).text == said
