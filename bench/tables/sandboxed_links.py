"""Sandboxed middleware: what it adds to a call and to a list, beside the same link in Python."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.report import Section, Table, rounded
from bench.scale import Scale
from portico import Context, MemoryClient, Request, Response, Server
from portico.library.components.handler_link import HandlerLink
from portico.library.components.handler_worker import HandlerWorker
from tests.library.wasm import building, hosting

HEADING = "Sandboxed middleware"

_TOOLS = 50
_ABOUT = (
    "A server of 50 tools in this process, behind middleware that passes everything on, and a "
    "client in memory: its own time is in every row. Each sandboxed link has a worker of its own, "
    "and each call an instance of its own.",
    "Lists are read once per catalog, so a list costs nothing more; after a change of the server, "
    "all four lists are read again before the next one is answered.",
)


def measure(scale: Scale) -> Section:
    """Calls and lists behind links of both kinds."""
    section = Section(notes=list(_ABOUT))
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(_measured(Path(folder), max(scale.calls // 3, 50)))
    columns = ("middleware", "call, median ms", "best ms", "list ms", "list after a change ms")
    section.tables.append(Table("", columns, rows))
    return section


def _passing(next: Any) -> Any:
    async def handle(request: Request, context: Context) -> Response:
        answer: Response = await next(request, context)
        return answer

    return handle


def _links(file: Path, folder: Path, number: int) -> list[HandlerLink]:
    known = hosting.settings(file, folder)

    def worker() -> HandlerWorker:
        return HandlerWorker(hosting.command(known))

    return [HandlerLink(f"guest{one}", worker) for one in range(number)]


async def _measured(folder: Path, calls: int) -> list[tuple[str, ...]]:
    own = building.javascript("noop.js", building.WIT / "own", "noop")
    typed = building.javascript("typed_noop.js", building.WIT / "v20251125", "middleware")
    for file in (own, typed):
        await hosting.compiled(hosting.settings(file, folder))
    chains: dict[str, Sequence[Any]] = {
        "none": (),
        "Python": (_passing,),
        "4 in Python": (_passing,) * 4,
        "sandboxed": _links(own, folder, 1),
        "4 sandboxed": _links(own, folder, 4),
        "sandboxed, wasmcp's types": _links(typed, folder, 1),
    }
    rows = []
    for name, links in chains.items():
        async with _behind(links) as (server, client):
            called = await _times(lambda: client.call_tool("tool0", {"text": "hi"}), calls)
            listed = await _times(client.list_tools, calls)
            changed = await _times(lambda: _changed(server, client), max(calls // 20, 5))
        medians = [statistics.median(one) for one in (called, listed, changed)]
        found = (medians[0], min(called), *medians[1:])
        rows.append((name, *(rounded(one * 1000) for one in found)))
    return rows


@asynccontextmanager
async def _behind(links: Sequence[Any]) -> AsyncGenerator[tuple[Server, MemoryClient], None]:
    server = Server("shop")

    async def echo(text: str) -> str:
        """Return the text."""
        return text

    for number in range(_TOOLS):
        server.tool(echo, name=f"tool{number}")
    async with server.test_client(links=links) as client:
        yield server, client
    for link in links:
        if isinstance(link, HandlerLink):
            link.worker.stop()
            await link.worker.stopped()


async def _changed(server: Server, client: MemoryClient) -> None:
    async def more() -> str:
        """Another tool."""
        return "more"

    known = len(await client.list_tools())
    server.tool(more, name=f"more{known}")
    assert len(await client.list_tools()) == known + 1


async def _times(work: Callable[[], Awaitable[object]], count: int) -> list[float]:
    await work()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await work()
        times.append(time.perf_counter() - began)
    return times
