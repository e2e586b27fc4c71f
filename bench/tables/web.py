"""HTTP: the cached list of 50, 250 and 6,000 tools, and an echo call."""

from collections.abc import Iterable
from contextlib import ExitStack
from math import ceil

from bench.contenders import (
    HTTP,
    HTTP_FLOOR,
    HTTP_PORTICO,
    HTTP_SDK,
    HTTP_TYPESCRIPT,
    Contender,
)
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_least, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.web import Post, WebServer
from bench.workload import SIZES, WrongAnswer

HEADING = "HTTP server, no upstream"

_CONNECTIONS = 8
_SLOW_S = 0.05
_CALL = "echo call"
_PEERS = {HTTP_SDK: 50, HTTP_TYPESCRIPT: 10}
"""How many times more CPU a peer should need than Portico, each as it comes.

The Python SDK's fastest mode has a row but no budget: a fiftieth of it is less than bare uvicorn.
"""


def measure(scale: Scale) -> Section:
    """CPU of every contender for every request."""
    section, samples, sizes = Section(), Samples(), {}
    with Workspace() as workspace:
        for size in SIZES:
            with ExitStack() as stack:
                servers = _start(HTTP, workspace, size, stack, section.notes)
                posts = [(_list_of(size), WebServer.list_post)]
                if size == SIZES[0]:
                    posts.append((_CALL, WebServer.call_post))
                for column, post_of in posts:
                    posts_by_server = [(server, post_of(server)) for server in servers]
                    _measure(posts_by_server, column, scale, samples, section.notes)
                sizes[size] = workspace.tools(size).stat().st_size
    section.tables.append(_table(samples))
    section.budgets += budgets(samples, sizes)
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def _start(
    contenders: Iterable[Contender],
    workspace: Workspace,
    size: int,
    stack: ExitStack,
    notes: list[str],
) -> list[WebServer]:
    """The contenders that start and answer correctly; the others become notes."""
    servers = []
    for contender in contenders:
        if (missing := contender.missing()) is not None:
            notes += [missing] if missing not in notes else []
            continue
        server = WebServer(contender, workspace, size)
        stack.enter_context(server.process)
        try:
            server.open()
            server.check_call()
        except WrongAnswer as wrong:
            notes.append(f"{contender.name} with {size} tools left out: {wrong}")
        else:
            servers.append(server)
    return servers


def _measure(
    posts: list[tuple[WebServer, Post]],
    column: str,
    scale: Scale,
    samples: Samples,
    notes: list[str],
) -> None:
    for server, post in interleaved(posts, scale.rounds + 1):
        name = server.contender.name
        try:
            cpu_us = _load(server, post, scale.web_seconds)
        except WrongAnswer as wrong:
            notes.append(f"{name}, {column}: {wrong}")
        else:
            samples.add(name, column, cpu_us)
    samples.forget_first(column)  # that round was to warm up


def _load(server: WebServer, post: Post, seconds: int) -> float:
    # Slow contenders get one request at a time, and time for several:
    # wrk counts finished requests only, but their CPU includes the one it cut short.
    if server.latency_s > _SLOW_S:
        return server.load(post, max(seconds, ceil(5 * server.latency_s)), 1).cpu_us
    return server.load(post, seconds, _CONNECTIONS).cpu_us


def _list_of(size: int) -> str:
    return f"list of {size:,}"


def _table(samples: Samples) -> Table:
    columns = [_CALL, *map(_list_of, SIZES)]
    rows = []
    for contender in HTTP:
        row = [contender.name]
        for column in columns:
            ratio = samples.ratio(contender.name, HTTP_FLOOR.name, column)
            row += [samples.cell(contender.name, column), "-" if ratio is None else f"{ratio:,.2f}"]
        rows.append(row)
    heads = [head for column in columns for head in (column, "x floor")]
    return Table("CPU us a request", ("", *heads), rows)


def budgets(samples: Samples, sizes: dict[int, int]) -> list[Budget]:
    """The budgets of lists and calls."""
    few, many = _list_of(SIZES[0]), _list_of(SIZES[-1])
    own = HTTP_PORTICO.name
    return [
        *(
            at_most(
                f"HTTP, {what}: CPU beside bare uvicorn",
                samples.ratio(own, HTTP_FLOOR.name, column),
                limit,
                "x",
            )
            for what, column, limit in (("cached list of 50", few, 1.6), (_CALL, _CALL, 1.9))
        ),
        *(
            at_least(
                f"HTTP, cached list of 50: {peer.name} beside Portico",
                samples.ratio(peer.name, own, few),
                limit,
                "x",
            )
            for peer, limit in _PEERS.items()
        ),
        at_most(
            "HTTP, CPU a byte: list of 6,000 beside list of 50",
            _per_byte(samples.median(own, many), samples.median(own, few), sizes),
            1.2,
            "x",
        ),
    ]


def _per_byte(many: float | None, few: float | None, sizes: dict[int, int]) -> float | None:
    if many is None or few is None:
        return None
    return (many / sizes[SIZES[-1]]) / (few / sizes[SIZES[0]])
