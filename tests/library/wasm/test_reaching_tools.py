"""Tools in the sandbox reach their client: notifications, questions by grant, values of a session.

Over a real `portico run`, in both eras, on stdio and over HTTP.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico import McpError, MemoryClient
from portico.edge.client.memory_client import memory_client
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.streamable_http import Url
from tests.library.components.test_faithful import Run
from tests.library.wasm import building, hosting
from tests.wrap.faults import portico_command

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("reaching-tools")]
WAYS = [(over, era) for over in ("stdio", "http") for era in ("modern", "legacy")]
every_way = pytest.mark.parametrize(("over", "era"), WAYS)
every_era = pytest.mark.parametrize("era", ["modern", "legacy"])
GRANTED = ("--grant", "guest:questions=elicit", "--grant", "guest:questions=sample")
MODEL = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello"}}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reaching")
    built = building.javascript("reaching.js", building.WIT / "own", "reaching")
    asyncio.run(hosting.compiled(hosting.settings(built, folder)))
    return Path(shutil.copy(built, folder / "guest.wasm"))


@asynccontextmanager
async def client_of(
    file: Path, over: str, era: str, *options: str, **answers: Any
) -> AsyncIterator[MemoryClient]:
    """A client of `portico run` on the component, with a log."""
    home = file.parent / "home"
    with ExitStack() as stack:
        if over == "http":
            running = stack.enter_context(Run(home, str(file), *options))
            address: Any = Url(f"http://127.0.0.1:{running.port}/mcp")
        else:
            address = Command(tuple(portico_command(home, "run", str(file), *options)))
        given = {"elicit": None, "sample": None, "roots": None, **answers}
        async with memory_client(address, era=era, log_level="info", **given) as client:
            yield client


async def text(client: MemoryClient, tool: str, /, **arguments: Any) -> str:
    return (await client.call_tool(tool, arguments)).text


@every_way
async def test_its_notifications_reach_the_client(file: Path, over: str, era: str) -> None:
    async with client_of(file, over, era) as client:
        told: list[Any] = []
        async with client.changes("note:one") as changes:
            answer = await client.call_tool("told", {}, progress=lambda *news: told.append(news))
            async with asyncio.timeout(60):
                assert (await anext(changes)).uri == "note:one"
        assert answer.text == "told"
        assert told == [(1, 2, "half")]
        noted = [(note.level, note.data, note.logger) for note in client.logged]
        assert noted == [("warning", {"what": "careful"}, "guest"), ("info", "not JSON", "")]


@every_way
async def test_notifications_of_wasmcp_reach_the_client(
    over: str, era: str, tmp_path: Path
) -> None:
    wit = building.WIT / "v20251125"
    built = building.python("noisy.py", wit, "noisy-tools", stub_wasi=False)
    await hosting.compiled(hosting.settings(built, tmp_path))
    copy = Path(shutil.copy(built, tmp_path / "guest.wasm"))
    async with client_of(copy, over, era) as client:
        told: list[Any] = []
        answer = await client.call_tool("told", {}, progress=lambda *news: told.append(news))
        assert (answer.text, told) == ("told", [(1, 2, "half")])
        noted = [(note.level, note.data, note.logger) for note in client.logged]
        assert noted == [("warning", {"what": "careful"}, "guest")]


@every_way
async def test_it_asks_only_what_is_granted(file: Path, over: str, era: str) -> None:
    asked: list[Any] = []

    def person(question: Any) -> Any:
        asked.append(question["message"])
        return {}

    def model(question: Any) -> Any:
        asked.append("model")
        return MODEL

    answers = {"elicit": person, "sample": model}
    async with client_of(file, over, era, **answers) as client:
        assert await text(client, "asked") == "refused: elicit is not granted"
        assert await text(client, "sampled") == "refused: sample is not granted"
    only = ("--grant", "guest:questions=elicit")
    async with client_of(file, over, era, *only, **answers) as client:
        assert '"action":"accept"' in await text(client, "asked")
        assert await text(client, "sampled") == "refused: sample is not granted"
    assert asked == ["Really?"]
    async with client_of(file, over, era, *GRANTED, **answers) as client:
        assert '"Hello"' in await text(client, "sampled")
        assert "not a JSON object" in await text(client, "badly")
    assert asked == ["Really?", "model"]


@every_era
async def test_a_person_may_decline_and_a_client_may_be_unable(file: Path, era: str) -> None:
    async with client_of(file, "stdio", era, *GRANTED, elicit=lambda _: None) as client:
        assert '"action":"decline"' in await text(client, "asked")
    async with client_of(file, "stdio", era, *GRANTED) as client:
        assert (await text(client, "asked")).startswith("refused: ")
        assert (await text(client, "sampled")).startswith("refused: ")


@every_era
async def test_the_time_of_a_question_does_not_count(file: Path, era: str) -> None:
    async def person(question: Any) -> Any:
        late = asyncio.Event()
        asyncio.get_running_loop().call_later(2, late.set)  # longer than the guest may take
        await late.wait()
        return {}

    options = (*GRANTED, "--grant", "guest:time=1s")
    async with client_of(file, "stdio", era, *options, elicit=person) as client:
        assert '"action":"accept"' in await text(client, "asked")


@every_era
async def test_values_of_a_session(file: Path, era: str) -> None:
    async with client_of(file, "stdio", era) as client:
        assert [await text(client, "count") for _ in range(3)] == ["1", "2", "3"]
        assert await text(client, "kept", key="a", value={"b": [1.5, None]}) == '{"b":[1.5,null]}'
        assert await text(client, "kept", key="nothing") == "null"
        too_large = await text(client, "kept", key="a", value="x" * 1024 * 1024)
        assert "is too large" in too_large
        assert (await text(client, "kept", key="k" * 1025, value=1)).startswith("refused: ")
        assert await text(client, "kept", key="a") == '{"b":[1.5,null]}'
        assert await text(client, "all") == '["a","calls"]'
        assert await text(client, "all", remove="a") == '["calls"]'


async def test_a_client_without_a_session_is_refused(file: Path) -> None:
    async with client_of(file, "http", "modern") as client:
        assert "no session" in await text(client, "count")


@every_era
async def test_a_list_that_changes_is_read_again(file: Path, era: Any, tmp_path: Path) -> None:
    built = building.javascript("reaching.js", building.WIT / "own", "reaching")
    address = hosting.command(hosting.settings(built, tmp_path, instance="shared"))
    given: Any = {"elicit": None, "sample": None, "roots": None, "log_level": ""}
    async with memory_client(address, era=era, **given) as client:
        assert "another" not in [tool.name for tool in await client.list_tools()]
        async with client.changes() as changes:
            assert await text(client, "grow") == "grown"
            async with asyncio.timeout(60):
                assert (await anext(changes)).kind == "tools"
        assert "another" in [tool.name for tool in await client.list_tools()]
        assert await text(client, "another") == "another"
        with pytest.raises((McpError, AssertionError)):
            assert not (await client.call_tool("wrong", {})).is_error
