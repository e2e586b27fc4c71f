"""Links and members: the cost of a link that does nothing, and of a function behind the gateway."""

from collections.abc import Iterator
from contextlib import ExitStack

from bench.contenders import PYTHON, SERVERS, STDIO_FLOOR, UPSTREAM, Asked, Contender
from bench.cores import one_core, price_of_reading
from bench.gateway import Fleet, GatewayPipe
from bench.pipe import PipeServer
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.servers.portico_linked import APPROVE, ASYNC, MEMBER
from bench.tables.wrap_drive import ProxyPipe
from bench.workload import WrongAnswer, tools

HEADING = "Links and members"

_FLOOR, _RUN, _WRAP, _SERVE = STDIO_FLOOR.name, "run", "wrap", "serve, execute_tool"
_MEMBER = f"{_SERVE} of a member"
_BUDGETED = f"{_SERVE}, sync_budget_s set"
_APPROVED = f"{_SERVE}, an approval link that does not ask"
_WITHOUT, _WITH, _AWAITING = "", ", a link", ", an async link"
_LINKS = {_WITHOUT: "0", _WITH: "1", _AWAITING: ASYNC}
_CALL, _LIST = "call", "list"
_DOORS = (_RUN, _WRAP, _SERVE)
_LAPS = 6
_LINK_US, _MEMBER_US, _BUDGETED_US, _FLOOR_US = 5, 25, 15, 35
_ASYNC_US = {_RUN: 10, _WRAP: 60, _SERVE: 60}
_ECHO = 1.9
"""Here, where the floor is as fresh as what it is compared with: see `price_of_reading`."""
_ABOUT = (
    "Driver, upstream and contender share one core. Each is restarted in every round and takes "
    "turns with the one it is compared with; the added time is the median of the differences. No "
    "figure includes the upstream's process.",
    "The link is a plain function that passes everything on, or an `async def`, which needs a task "
    "for a call of an upstream. The program is the same without it. The list of `serve` has its "
    "own tools only.",
    "With `sync_budget_s` a call that takes longer becomes a task; these are faster.",
    "The approval link is `examples/approve.py`, and every tool is marked as read-only.",
    f"A member is a server inside the gateway's process, with the function of `{_RUN}`.",
    f"Budgets in microseconds assume a floor of {_FLOOR_US} us a call, and are scaled to the floor "
    "of this run.",
)


def measure(scale: Scale) -> Section:
    """CPU of calls and lists with a link and without it, and of calls of a member."""
    section, samples, faults = Section(notes=list(_ABOUT)), Samples(), Samples()
    with Workspace() as workspace:
        fleet = Fleet(workspace, {"upstream": tools(50)})
        try:
            fleet.fill()
            for _ in range(scale.rounds):
                _round(fleet, scale, samples, faults)
        except WrongAnswer as wrong:
            section.notes.append(f"not measured to the end: {wrong}")
    section.tables.append(_table(samples))
    section.budgets += budgets(samples)
    section.notes.append(price_of_reading(faults.median(_FLOOR, _CALL)))
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def _round(fleet: Fleet, scale: Scale, samples: Samples, faults: Samples) -> None:
    with ExitStack() as stack:
        running = []
        for name, server in servers(fleet):
            stack.enter_context(server.process)
            opened(server)
            server.load(server.call_request, scale.calls // 10)  # warm up
            running.append((name, server))
        for name, server in interleaved(running, _LAPS):
            with one_core(server.process.everyone()):
                calls = server.load(server.call_request, scale.calls // _LAPS)
                lists = server.load(server.list_request, scale.lists // _LAPS)
            samples.add(name, _CALL, calls.cpu_us)
            samples.add(name, _LIST, lists.cpu_us)
            faults.add(name, _CALL, calls.faults)


def servers(fleet: Fleet) -> Iterator[tuple[str, PipeServer]]:
    """Each of them as it starts, by the name of its row."""
    yield _FLOOR, PipeServer(STDIO_FLOOR, fleet.workspace)
    for after, links in _LINKS.items():
        for command, words in (
            (_RUN, (f"{SERVERS}/portico_server.py",)),
            (_WRAP, ("--", *UPSTREAM)),
        ):
            argv = (*_program(links, command), *words)
            contender = Contender(command + after, argv, asked=Asked.LEGACY)
            yield contender.name, ProxyPipe(contender, fleet.workspace)
        # With a link it is not shared between windows; without one, `--alone` ensures that.
        gateway = fleet.program(_SERVE + after, _program(links, "serve"), "--alone")
        yield gateway.name, GatewayPipe(gateway, fleet)
    yield _MEMBER, member(fleet)
    budgeted = fleet.program(_BUDGETED, _program("0", "serve"), "--alone", budgeted=True)
    yield _BUDGETED, GatewayPipe(budgeted, fleet)
    approved = fleet.program(_APPROVED, _program(APPROVE, "serve"), "--alone")
    yield _APPROVED, GatewayPipe(approved, fleet)


def member(fleet: Fleet) -> GatewayPipe:
    """A gateway whose calls are of a function in its own process."""
    return GatewayPipe(fleet.program(_MEMBER, _program("0", "member")), fleet, MEMBER)


def _program(links: str, command: str) -> tuple[str, ...]:
    return (PYTHON, "-m", "bench.servers.portico_linked", links, command)


def opened(server: PipeServer) -> None:
    """Connect, request a list and a call, and check the answers."""
    server.open()
    if isinstance(server, GatewayPipe):
        server.use("refresh_tools")
    elif isinstance(server, ProxyPipe) and server.changes_lists:
        raise WrongAnswer(f"{server.contender.name}: its list is not the upstream's")
    server.check_call()


def _table(samples: Samples) -> Table:
    rows = [[_FLOOR, *_cells(samples, _FLOOR), "-", "-"]]
    for door in _DOORS:
        rows.append([door, *_cells(samples, door), "-", "-"])
        for after in (_WITH, _AWAITING):
            name = door + after
            added = [samples.difference(name, door, column) for column in (_CALL, _LIST)]
            rows.append([name, *_cells(samples, name), *map(_added, added)])
    more = samples.difference(_MEMBER, _RUN, _CALL)
    rows.append([_MEMBER, *_cells(samples, _MEMBER), f"{_added(more)} to {_RUN}", "-"])
    rows += [
        [name, *_cells(samples, name), _added(_more(samples, name)), "-"]
        for name in (_BUDGETED, _APPROVED)
    ]
    columns = ("", _CALL, _LIST, "added to a call", "added to a list")
    return Table("CPU us over stdio, on one core", columns, rows)


def _more(samples: Samples, row: str) -> float | None:
    return samples.difference(row, _SERVE, _CALL)


def _cells(samples: Samples, row: str) -> list[str]:
    return [samples.cell(row, column, "{:,.1f}".format) for column in (_CALL, _LIST)]


def _added(us: float | None) -> str:
    return "-" if us is None else f"{us:+,.1f}"


def budgets(samples: Samples) -> list[Budget]:
    """The budgets of links, a member and a call budget, scaled by the floor's speed here."""
    links = [
        _budget(
            samples,
            f"{door}: what a link adds to the CPU of a {what}, on one core",
            samples.difference(door + _WITH, door, what),
            _LINK_US,
        )
        for door in _DOORS
        for what in (_CALL, _LIST)
    ]
    links += [
        _budget(
            samples,
            f"{door}: what an async link adds to the CPU of a call, on one core",
            samples.difference(door + _AWAITING, door, _CALL),
            limit_us,
        )
        for door, limit_us in _ASYNC_US.items()
    ]
    more = samples.difference(_MEMBER, _RUN, _CALL)
    promise = f"{_MEMBER}: CPU beside {_RUN}, on one core"
    echo = at_most(
        f"{_RUN}: CPU of an echo call beside asyncio + msgspec, on one core",
        samples.ratio(_RUN, _FLOOR, _CALL),
        _ECHO,
        "x",
    )
    member = _budget(samples, promise, more, _MEMBER_US)
    promise = f"{_BUDGETED}: what it adds to the CPU of a fast call, on one core"
    budgeted = _budget(samples, promise, _more(samples, _BUDGETED), _BUDGETED_US)
    promise = f"{_APPROVED}: what it adds to the CPU of a call, on one core"
    approved = _budget(samples, promise, _more(samples, _APPROVED), _LINK_US)
    return [*links, member, budgeted, approved, echo]


def _budget(samples: Samples, promise: str, us: float | None, limit_us: float) -> Budget:
    floor = samples.median(_FLOOR, _CALL)
    if floor is None:
        us, floor = None, _FLOOR_US
    promise = f"{promise} ({limit_us} us where the floor takes {_FLOOR_US})"
    return at_most(promise, us, round(limit_us * floor / _FLOOR_US, 2), " us")
