"""Components in the gateway's process: imported when needed, replaced when their file changes."""

import asyncio
import sys
from pathlib import Path

import pytest

from portico.core.config.schema import ComponentEntry, Config, Timeouts
from portico.library.components.own_modules import forget_modules
from tests.gateway.registries import LEGACY, MODERN, Client, World, registry
from tests.serve.components import CALC
from tests.support.backoff import until
from tests.support.clock import Clock

MORE = '''

@server.tool
def more() -> str:
    """Say more."""
    return "more"
'''

TWICE = '''
from portico import Context, Server

server = Server("twice")


@server.tool
async def double(number: int, context: Context) -> str:
    """Double a number."""
    result = await context.call_tool("calc__add", {"a": number, "b": number})
    return result.text
'''


def entry(path: Path, **more: object) -> ComponentEntry:
    return ComponentEntry(name="calc", path=str(path), in_process=True, **more)  # type: ignore[arg-type]


def config(component: ComponentEntry) -> Config:
    return Config(path="portico.toml", components={component.name: component})


COUNTING = """
from portico import Context, Server

server = Server("same")


@server.tool
async def count(context: Context) -> int:
    \"\"\"Count the calls of this session.\"\"\"
    return await context.store.increment("calls")
"""


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_components_whose_servers_have_one_name_keep_their_values_apart(
    tmp_path: Path, version: str
) -> None:
    both = {}
    for name in ("one", "two"):
        path = tmp_path / f"{name}.py"
        path.write_text(COUNTING)
        both[name] = ComponentEntry(name=name, path=str(path), in_process=True)
    found = Config(path="portico.toml", components=both)
    async with registry(World(), found, expose="all") as gateway:
        client = Client(gateway.endpoint(), version)
        if version == LEGACY:
            await client.hello()
        tools = ("one__count", "one__count", "two__count")
        assert [await client.said(tool) for tool in tools] == ["1", "2", "1"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_component_is_imported_by_its_first_call(tmp_path: Path, version: str) -> None:
    path = tmp_path / "calc.py"
    path.write_text(CALC)
    async with registry(World(), config(entry(path)), expose="all") as gateway:
        assert gateway.status()["servers"][0]["state"] == "not imported"
        client = Client(gateway.endpoint(), version)
        if version == LEGACY:
            await client.hello()
        assert await client.said("calc__add", a=2, b=3) == "5"
        status = gateway.status()["servers"][0]
        assert (status["kind"], status["state"], status["starts"]) == ("component", "in process", 1)
        endpoint = gateway.server_endpoint("calc")
        assert endpoint is not None
        alone = Client(endpoint, version)
        assert await alone.names() == ["add"]
        assert await alone.said("add", a=1, b=1) == "2"


async def test_a_component_in_the_process_calls_tools_of_other_members(tmp_path: Path) -> None:
    (tmp_path / "calc.py").write_text(CALC)
    path = tmp_path / "twice.py"
    path.write_text(TWICE)
    twice = ComponentEntry(name="twice", path=str(path), in_process=True)
    both = {"twice": twice, "calc": entry(tmp_path / "calc.py")}
    for version in (LEGACY, MODERN):
        found = Config(path="portico.toml", components=both)
        async with registry(World(), found, expose="all") as gateway:
            client = Client(gateway.endpoint(), version)
            if version == LEGACY:
                await client.hello()
            assert await client.said("twice__double", number=21) == "42"


async def test_only_real_changes_are_published(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "calc.py"
    path.write_text(CALC)
    reports: list[str] = []
    component = config(entry(path))
    async with registry(World(), component, expose="all", report=reports.append) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        await client.names()
        await clock.advance(5)
        client.heard.clear()
        for text, said, published in (
            (CALC.replace("a + b", "a - b"), "-1", 0),
            (CALC + MORE, "5", 1),
            ("1 / 0\n", "5", 0),
            (CALC + MORE + "\n", "5", 0),
        ):
            path.write_text(text)
            client.heard.clear()
            before = len(reports)
            gateway.start_reload("calc")
            await until(lambda before=before: len(reports) > before)
            await clock.advance(5)
            assert await client.said("calc__add", a=2, b=3) == said
            assert len(client.heard) == published, text
    assert [one.partition(":")[0] for one in reports] == [
        "calc reloaded",
        "calc reloaded",
        "calc not reloaded",
        "calc reloaded",
    ]


async def test_an_import_that_hangs_keeps_one_thread_however_often_it_is_called(
    tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "calc.py"
    path.write_text("import threading\nthreading.Event().wait()\n")
    hangs = entry(path, timeouts=Timeouts(init=5))
    async with registry(World(), config(hangs), expose="all") as gateway:
        member = gateway.members["calc"]
        provider = member.provider
        for _ in range(3):
            task = asyncio.ensure_future(gateway.refresh(["calc"]))
            await until(lambda: provider.starts == 1)
            await clock.advance(6)
            await task
            assert "not imported within 5 s" in member.problem
        assert provider.starts == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt"),
        ("raise SystemExit(3)\n", "the import exited with code 3"),
        ("def link(next):\n    return next\n", "middleware, not a server"),
        (f"{CALC}\ndef link(next):\n    return next\n", "a server with middleware"),
        ("from mcp.server import MCPServer\n", "needs its own process; remove in_process"),
        ("", "contains neither a Server nor a link"),
    ],
)
async def test_a_file_that_cannot_be_used_is_the_problem_of_its_member(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "calc.py"
    path.write_text(text)
    async with registry(World(), config(entry(path)), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        assert words in gateway.members["calc"].problem
        client = Client(gateway.endpoint())
        await client.hello()
        assert words in str(await client.request("tools/call", {"name": "calc__add"}))


def test_only_modules_beside_a_file_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "beside_package"
    package.mkdir()
    for file in (package / "__init__.py", package / "inner.py", tmp_path / "beside_module.py"):
        file.write_text("")
    elsewhere = tmp_path / "folder"
    elsewhere.mkdir()
    (elsewhere / "elsewhere_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(elsewhere)
    names = ("beside_module", "beside_package", "beside_package.inner", "elsewhere_module")
    for name in names:
        __import__(name)
    forget_modules(str(tmp_path / "calc.py"))
    assert [name for name in names if name in sys.modules] == ["elsewhere_module"]
    del sys.modules["elsewhere_module"]
