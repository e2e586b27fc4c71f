"""Memory: that of an idle server, and the growth after a million requests."""

from collections.abc import Callable, Sequence
from statistics import median

from bench.contenders import (
    HTTP,
    HTTP_FLOOR,
    HTTP_PORTICO,
    HTTP_SESSION,
    HTTP_TOKEN,
    STDIO,
    STDIO_MODERN,
    STDIO_PORTICO,
    STDIO_WITHOUT,
    Contender,
)
from bench.pipe import PipeServer
from bench.process import MB, Memory, Workspace
from bench.report import Budget, Section, Table, at_most
from bench.scale import Scale
from bench.web import Post, WebServer
from bench.workload import WrongAnswer

HEADING = "Memory"

_CONNECTIONS = 8
_IN_FLIGHT = 32
_SLICE = 10_000
_NOT_APART = (HTTP_SESSION, HTTP_TOKEN, STDIO_MODERN, *STDIO_WITHOUT)
"""The same programs as others, as far as memory goes."""


def measure(scale: Scale) -> Section:
    """Idle memory of every contender, growth of Portico's."""
    section = Section()
    with Workspace() as workspace:
        idle = _idle(workspace, min(scale.rounds, 3), section.notes)
        section.tables.append(_idle_table(idle))
        section.budgets += _idle_budgets(idle)
        flat = _flat(workspace, scale, section.notes)
        section.tables.append(_flat_table(flat))
        section.budgets += _flat_budgets(flat)
    return section


# Idle: started, with one list answered; then the same after one call.

Idle = dict[tuple[str, str], tuple[Memory, Memory]]


def _idle(workspace: Workspace, rounds: int, notes: list[str]) -> Idle:
    found: Idle = {}
    ways: list[tuple[str, Contender, type[PipeServer | WebServer]]] = [
        *(("stdio", c, PipeServer) for c in STDIO if c not in _NOT_APART),
        *(("HTTP", c, WebServer) for c in HTTP if c not in _NOT_APART),
    ]
    for way, contender, kind in ways:
        if contender.missing() is None:
            try:
                seen = [_look(kind(contender, workspace, 50)) for _ in range(rounds)]
            except WrongAnswer as wrong:
                notes.append(f"{contender.name} over {way} left out: {wrong}")
            else:
                before, after = zip(*seen, strict=True)
                found[way, contender.name] = (_middle(before), _middle(after))
    return found


def _look(server: PipeServer | WebServer) -> tuple[Memory, Memory]:
    with server.process:
        server.open()
        before = server.process.memory()
        server.check_call()
        return before, server.process.memory()


def _middle(seen: Sequence[Memory]) -> Memory:
    return Memory(int(median(m.rss for m in seen)), int(median(m.pss for m in seen)))


def _idle_table(idle: Idle) -> Table:
    rows = [
        (f"{name} ({way})", *(f"{size / MB:.1f}" for size in (before.rss, before.pss, after.rss)))
        for (way, name), (before, after) in idle.items()
    ]
    return Table(
        "Idle with 50 tools after the first list, MB", ("", "RSS", "PSS", "RSS after a call"), rows
    )


def _idle_budgets(idle: Idle) -> list[Budget]:
    on_pipes = idle.get(("stdio", STDIO_PORTICO.name))
    on_web, floor = idle.get(("HTTP", HTTP_PORTICO.name)), idle.get(("HTTP", HTTP_FLOOR.name))
    return [
        at_most("stdio, idle RSS", on_pipes[0].rss / MB if on_pipes else None, 30, " MB"),
        at_most(
            "HTTP, idle RSS beside bare uvicorn",
            on_web[0].rss / floor[0].rss if on_web and floor else None,
            1.4,
            "x",
        ),
    ]


# Flat: resident bytes by the number of requests answered so far.

Growth = list[tuple[int, int]]
Flat = dict[tuple[str, str], Growth]


def _flat(workspace: Workspace, scale: Scale, notes: list[str]) -> Flat:
    found: Flat = {}
    for contender, lists in ((HTTP_PORTICO, scale.flat_lists), (HTTP_SESSION, scale.flat_calls)):
        name = f"{contender.name} (HTTP)"
        web = WebServer(contender, workspace, 50)
        with web.process:
            try:
                web.open()
                web.check_call()
                found[name, "lists"] = _soak_web(web, web.list_post(), lists)
                found[name, "calls"] = _soak_web(web, web.call_post(), scale.flat_calls)
            except WrongAnswer as wrong:
                notes.append(f"{name}: {wrong}")
    pipes = PipeServer(STDIO_PORTICO, workspace)
    with pipes.process:
        try:
            pipes.open()
            pipes.check_call()
            name = f"{STDIO_PORTICO.name} (stdio)"
            found[name, "lists"] = _soak_pipes(pipes, pipes.list_request, scale.flat_lists)
            found[name, "calls"] = _soak_pipes(pipes, pipes.call_request, scale.flat_calls)
        except WrongAnswer as wrong:
            notes.append(f"{STDIO_PORTICO.name} over stdio: {wrong}")
    return found


def _soak_web(server: WebServer, post: Post, count: int) -> Growth:
    growth: Growth = []
    done = 0
    while done < count:
        done += server.load(post, 1, _CONNECTIONS).requests
        growth.append((done, server.process.memory().rss))
    return growth


def _soak_pipes(server: PipeServer, make: Callable[[int], bytes], count: int) -> Growth:
    growth: Growth = []
    step = min(_SLICE, count // 10)
    for done in range(step, count + 1, step):
        server.load(make, step, _IN_FLIGHT)
        growth.append((done, server.process.memory().rss))
    return growth


def _at_tenth(growth: Growth) -> int:
    """The memory once the first tenth of all requests was answered."""
    return next(rss for done, rss in growth if done >= growth[-1][0] / 10)


def _flat_table(flat: Flat) -> Table:
    rows = []
    for (name, what), growth in flat.items():
        (done, last), tenth = growth[-1], _at_tenth(growth)
        rows.append(
            (
                f"{name}: {done:,} {what}",
                f"{tenth / MB:.1f}",
                f"{max(rss for _, rss in growth) / MB:.1f}",
                f"{last / MB:.1f}",
                f"{(last - tenth) / MB:+.2f}",
            )
        )
    columns = ("", "RSS at 10 %", "highest", "at the end", "growth")
    return Table("Flat memory, MB", columns, rows)


def _flat_budgets(flat: Flat) -> list[Budget]:
    found = []
    for name in (f"{HTTP_PORTICO.name} (HTTP)", f"{STDIO_PORTICO.name} (stdio)"):
        growth = flat.get((name, "lists"))
        grown = None if growth is None else (growth[-1][1] - _at_tenth(growth)) / MB
        count = f"{growth[-1][0]:,}" if growth else "many"
        found.append(
            at_most(f"{name}, growth over the last 90 % of {count} lists", grown, 2, " MB")
        )
    return found
