"""`make bench-clients`: the tokens that a model reads at the start, by client.

Each real client runs in front of `portico serve`, with a scripted model on loopback: the first
request to its model is counted. A definition that the client defers is not read.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from timeit import repeat
from typing import Any, NamedTuple

from bench import machine, report
from bench.gateway import Fleet, spread
from bench.machine import NODE
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most
from bench.tokens import TOKENIZER, count
from bench.workload import CATALOG, encode
from portico import Context, Server
from portico.core.model.message import Request
from portico.edge.fit.exposure_choice import ClientFacts, GatewayFacts, choose
from tests.fit.named_clients import CLAUDE, NamedClient, window
from tests.fit.real_clients import REAL_CLIENTS, prompted
from tests.rigs.running import shelf
from tests.serve.gateway import serve_command
from tests.support.model_server import model_server, says

HEADING = "Tokens at the start, by client"
SIZES = {45: 3, 150: 8, 500: 15}
"""How many tools, and of how many servers."""
SHARE = 0.25
"""The part of all definitions that a model may read at most."""
LOOKUP = 0.1
_ABOUT = (
    "Each client in front of `portico serve`, with a scripted model on loopback: the tokens of the "
    "first request to its model, less those of the same client with a server without tools. "
    "Counted with gpt-tokenizer, o200k_base; definitions that the client defers are not counted.",
    "*Fitted* is what the client gets with `expose = auto`. A client that searches tools itself "
    "reads the names of all tools, or one line for the server, and saves the second search.",
    "Codex sends its first request when it is ready, and its server may be ready later: the "
    "smallest figures are noise.",
    "The lookup is that of a modern HTTP client's endpoint, beside a cached list in memory.",
)


class Cell(NamedTuple):
    """The tokens of one client with one number of tools, in both exposures."""

    fitted: str
    tokens: dict[str, int]


def read_by_model(request: dict[str, Any]) -> str:
    """The text of a request that a model reads: without the definitions that are deferred."""
    tools = [_loaded(tool) for tool in request.get("tools") or ()]
    return encode({**request, "tools": [tool for tool in tools if tool]}).decode()


def _loaded(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("defer_loading"):
        return {}
    nested = tool.get("tools")
    if not isinstance(nested, list):
        return tool
    return {**tool, "tools": [one for one in nested if not one.get("defer_loading")]}


async def _first_request(client: str, server: list[str]) -> str:
    """The text that a client's model reads first with this server."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with model_server({"HELLO": [says("Hello.")]}) as model:
            await prompted(client, Path(folder), model, server, "say HELLO")
    asked = [request for request in model.requests if request.get("tools")]
    if not asked:
        raise RuntimeError(f"{client} has sent no request with tools")
    return read_by_model(asked[0])


def _request(client: str, server: list[str]) -> int:
    """The larger of two: a client that is ready before its server asks without its tools."""

    async def twice() -> list[str]:
        return await asyncio.gather(*(_first_request(client, server) for _ in range(2)))

    return max(count(asyncio.run(twice())))


def measure(clients: Sequence[str]) -> dict[str, list[Cell]]:
    """By client, its cells; `--expose` takes the place of the choice for the other exposure."""
    found: dict[str, list[Cell]] = {client: [] for client in clients}
    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "none"
        words.write_text("")
        bare = {client: _request(client, shelf(words)) for client in clients}
    for tools, servers in SIZES.items():
        with Workspace() as workspace:
            Fleet(workspace, spread(tools, servers))
            home, config = workspace.path / "portico", workspace.path / "portico.toml"
            with window(home, config, modern=False) as first:
                NamedClient(first, CLAUDE).call("refresh_tools")  # all lists are on disk
            for client in clients:
                found[client].append(_cell(client, home, config, bare[client]))
                print(tools, client, found[client][-1], file=sys.stderr)
    return found


def _cell(client: str, home: Path, config: Path, bare: int) -> Cell:
    facts = ClientFacts(given=client)
    fitted = choose(facts, GatewayFacts({}, "auto", has_many=True, many=30)).expose
    other = "all" if fitted == "search" else "search"
    command = serve_command(home, config)
    tokens = {fitted: _request(client, command) - bare}
    tokens[other] = _request(client, [*command, "--expose", other]) - bare
    return Cell(fitted, tokens)


def everything(tools: int, servers: int) -> int:
    """The tokens of all definitions."""
    found = spread(tools, servers)
    return count([json.dumps([tool for listed in found.values() for tool in listed])])[0]


def _table(found: dict[str, list[Cell]], whole: Sequence[int]) -> Table:
    sizes = [f"{servers} servers, {tools} tools" for tools, servers in SIZES.items()]
    columns = ["client", *(f"{size}: {kind}" for size in sizes for kind in ("fitted", "other"))]
    rows = [
        ["all definitions", *(text for tokens in whole for text in (f"{tokens:,}", ""))],
        *([client, *_texts(cells)] for client, cells in found.items()),
    ]
    return Table("Before anything is asked", columns, rows)


def _texts(cells: Sequence[Cell]) -> list[str]:
    texts = []
    for cell in cells:
        other = next(expose for expose in cell.tokens if expose != cell.fitted)
        texts += [f"{cell.tokens[name]:,} ({name})" for name in (cell.fitted, other)]
    return texts


def _budgets(found: dict[str, list[Cell]], whole: Sequence[int]) -> list[Budget]:
    tools = [*SIZES][-1]
    return [
        at_most(
            f"{client}, {tools} tools: beside all definitions",
            cells[-1].tokens[cells[-1].fitted] / whole[-1],
            SHARE,
            "x",
        )
        for client, cells in found.items()
    ]


def lookup() -> Budget:
    """The lookup of a client's endpoint, beside the cached list that it answers."""
    server = Server("x")
    endpoint = server.endpoint()
    request, context = Request(method="tools/list", id=b"1"), Context()
    by_client = {("local", b'{"name":"a","version":"1"}'): endpoint}
    info = b'{"name":"a","version":"1"}'
    rounds = 20_000
    listed = min(repeat(lambda: endpoint.handle(request, context), number=rounds))
    found = min(repeat(lambda: by_client.get(("local", info), endpoint), number=rounds))
    floor = min(repeat(lambda: endpoint, number=rounds))
    return at_most("the lookup of a client's endpoint", (found - floor) / listed, LOOKUP, "x")


def main() -> int:
    """Print, and keep in the docs; a missed budget is a finding, not a failure."""
    for needed in (CATALOG, NODE, TOKENIZER):
        if not needed.exists():
            print(f"not there: {needed} (`make setup` installs the tools)")
            return 1
    facts = machine.facts()
    found = measure([*REAL_CLIENTS])
    whole = [everything(tools, servers) for tools, servers in SIZES.items()]
    budgets = [*_budgets(found, whole), lookup()]
    section = Section([_table(found, whole)], budgets, list(_ABOUT))
    verdicts = report.verdicts(budgets).markdown()
    text = f"{facts}\n\n{section.markdown()}\n{verdicts}"
    print(f"## {HEADING}\n\n{text}\n{report.summary(budgets)}")
    report.keep("clients", HEADING, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
