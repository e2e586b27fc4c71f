"""What is measured of links, members and calls is what it says, and held against its limits."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

import portico
from bench.gateway import Fleet
from bench.process import Process, Workspace
from bench.report import Budget
from bench.rounds import Samples
from bench.scale import QUICK
from bench.servers.portico_linked import awaiting, main, passing
from bench.tables import chain, stdio, web
from bench.workload import WrongAnswer, tools
from portico import Context, Request, Response

_TOUCH = "input(); kept = b'x' * 1_000_000; print(); input()"


def test_a_difference_is_the_middle_of_those_of_each_round() -> None:
    samples = _samples({"with": [11, 52, 33], "without": [10, 50, 30]}, "call")

    assert samples.difference("with", "without", "call") == 2
    assert samples.difference("with", "nobody", "call") is None


def test_what_a_link_or_a_member_may_add_is_scaled_by_the_floor_of_this_run() -> None:
    samples = _rows(floor=70, link=9.9, awaiting=19, member=49, budget=29.9)

    found = chain.budgets(samples)

    assert [budget.limit for budget in found] == [
        *["<= 10 us"] * 6,
        *["<= 20 us", "<= 120 us", "<= 120 us"],
        *["<= 50 us", "<= 30 us", "<= 10 us", "<= 1.9x"],
    ]
    assert {budget.met for budget in found} == {True}


def test_a_link_or_a_member_that_adds_more_is_missed() -> None:
    found = chain.budgets(_rows(floor=70, link=10.1, awaiting=121, member=51, budget=30.1))

    assert {budget.met for budget in found[:-1]} == {False}


def test_without_the_floor_no_limit_is_known() -> None:
    found = chain.budgets(_rows(floor=None, link=0, awaiting=0, member=0, budget=0))

    assert [budget.met for budget in found] == [None] * 13


def test_a_wrong_answer_is_noted_and_leaves_budgets_unmeasured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(fleet: Fleet) -> None:
        raise WrongAnswer("no list")

    monkeypatch.setattr(Fleet, "fill", wrong)
    section = chain.measure(QUICK)

    assert "not measured to the end: no list" in section.notes
    assert {budget.met for budget in section.budgets} == {None}


def _rows(
    *, floor: float | None, link: float, awaiting: float, member: float, budget: float
) -> Samples:
    rows: dict[str, list[float]] = {} if floor is None else {"floor: asyncio + msgspec": [floor]}
    for door in ("run", "wrap", "serve, execute_tool"):
        rows |= {door: [40], f"{door}, a link": [40 + link]}
        rows[f"{door}, an async link"] = [40 + awaiting]
    rows["serve, execute_tool of a member"] = [40 + member]
    rows["serve, execute_tool, sync_budget_s set"] = [40 + budget]
    rows["serve, execute_tool, an approval link that does not ask"] = [40 + budget / 3]
    return _samples(rows, "call", "list")


@pytest.mark.parametrize(("us", "met"), [(18, True), (20, False)])
def test_an_echo_over_stdio_is_held_against_the_floor(us: float, met: bool) -> None:
    rows: dict[str, list[float]] = {"run": [us], "floor: asyncio + msgspec": [10]}

    found = chain.budgets(_samples(rows, "call"))

    assert _of(found, "run: CPU of an echo call beside asyncio").met is met


@pytest.mark.parametrize(("us", "met"), [(10, True), (11, False)])
def test_echoes_in_flight_are_held_against_the_typescript_sdk(us: float, met: bool) -> None:
    rows: dict[str, list[float]] = {"Portico, portico run": [us], "TypeScript SDK 1.x": [10]}

    found = stdio.budgets(_samples(rows, "32 in flight, one core"))

    assert _of(found, "stdio, echo call, 32 in flight").met is met


@pytest.mark.parametrize(("us", "met"), [(18, True), (20, False)])
def test_an_echo_over_http_is_held_against_bare_uvicorn(us: float, met: bool) -> None:
    rows: dict[str, list[float]] = {"Portico": [us], "floor: bare uvicorn callable": [10]}

    found = web.budgets(_samples(rows, "echo call"), {})

    assert _of(found, "HTTP, echo call: CPU beside bare uvicorn").met is met


def _samples(rows: Mapping[str, Sequence[float]], *columns: str) -> Samples:
    samples = Samples()
    for row, figures in rows.items():
        for column in columns:
            for figure in figures:
                samples.add(row, column, figure)
    return samples


def _of(budgets: list[Budget], promise: str) -> Budget:
    (found,) = (budget for budget in budgets if budget.promise.startswith(promise))
    return found


@pytest.mark.parametrize("command", ["run", "wrap", "serve"])
def test_the_program_puts_as_many_links_in_front_as_it_is_told(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[Any] = []

    def serve(*words: str, links: list[Any]) -> int:
        got.append((words, links))
        return 0

    monkeypatch.setattr(portico, command, serve)
    main("1", command, "a", "b")
    main("0", command)
    main("async", command)

    assert got == [(("a", "b"), [passing]), ((), []), ((), [awaiting])]


def test_the_link_passes_on_what_is_asked_and_what_is_answered() -> None:
    request, context = Request(method="ping"), Context()
    response = Response(id=b"1", result=b"{}")
    seen: list[object] = []

    def handler(*asked: object) -> Response:
        seen.append(asked)
        return response

    assert passing(handler)(request, context) is response
    assert seen == [(request, context)]


def test_pages_are_counted_when_the_kernel_hands_them_over() -> None:
    with (
        Workspace() as workspace,
        Process([sys.executable, "-c", _TOUCH], workspace, 1, pipes=True) as process,
    ):
        assert process.popen.stdin is not None
        assert process.popen.stdout is not None
        before = process.faults()
        process.popen.stdin.write(b"\n")
        process.popen.stdout.read(1)

        assert process.faults() > before


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Workspace() as workspace:
        fleet = Fleet(workspace, {"upstream": tools(50)})
        fleet.fill()
        yield fleet


@pytest.mark.slow
@pytest.mark.xdist_group("chain-bench")
def test_every_row_answers_right_and_every_budget_has_its_rows(fleet: Fleet) -> None:
    samples = Samples()
    for name, server in chain.servers(fleet):
        with server.process:
            chain.opened(server)
            calls = server.load(server.call_request, 20)
            lists = server.load(server.list_request, 20)
        samples.add(name, "call", calls.cpu_us)
        samples.add(name, "list", lists.cpu_us)

    assert None not in {budget.met for budget in chain.budgets(samples)}


@pytest.mark.slow
@pytest.mark.xdist_group("chain-bench")
def test_a_member_answers_while_no_server_can_start(fleet: Fleet) -> None:
    with fleet.down(), (server := chain.member(fleet)).process:
        server.open()
        server.check_call()

        assert server.process.upstreams() == 0
