"""What is measured of components is what it says, and held against its limits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.contenders import PYTHON, Contender
from bench.gateway import Fleet
from bench.pipe import PipeServer
from bench.process import MB, Workspace
from bench.report import Budget
from bench.rounds import Samples
from bench.scale import QUICK
from bench.tables import components
from bench.tables.wrap_drive import ProxyPipe
from bench.workload import WrongAnswer, tools

_IN_PROCESS = ("run, two files", "serve, a component in process")
_OWN_PROCESS = ("run, the file's process", "serve, a component")
_TWENTY = ("none started", "all running")
_NOTIFYING = """
import json, sys
for line in sys.stdin:
    print('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
    id = json.loads(line)["id"]
    print('{"jsonrpc":"2.0","id":%d,"result":{}}' % id, flush=True)
"""


def _samples(*, floor: float | None, inside: float, own: float, added: float) -> Samples:
    calls: dict[str, float] = {
        "run, a file": 40,
        "wrap, the file's process": 100,
        "serve, a server": 100,
    }
    calls |= dict.fromkeys(_IN_PROCESS, 40 + inside) | dict.fromkeys(_OWN_PROCESS, 100 * own)
    if floor is not None:
        calls["floor: asyncio + msgspec"] = floor
    memory = {f"20 components, {how}": 30 + added for how in _TWENTY}
    memory |= {"no component": 30, "20 components in process": 30 + added}
    samples = Samples()
    for name, us in calls.items():
        for column in ("call", "execute_tool"):
            samples.add(name, column, us)
    for name, size in memory.items():
        samples.add(name, "RSS MB", size)
    return samples


def _budgets(*, floor: float | None, inside: float, own: float, added: float) -> list[Budget]:
    return components.budgets(_samples(floor=floor, inside=inside, own=own, added=added))


def test_limits_in_microseconds_are_scaled_by_the_floor_of_this_run() -> None:
    found = _budgets(floor=70, inside=49, own=1.0, added=14)

    assert [budget.limit for budget in found] == [
        *["<= 50 us"] * 3,
        *["<= 1.05x"] * 3,
        *["<= 15 MB"] * 3,
    ]
    assert {budget.met for budget in found} == {True}


def test_components_that_cost_more_are_missed() -> None:
    found = _budgets(floor=70, inside=51, own=1.1, added=16)

    assert {budget.met for budget in found} == {False}


def test_without_the_floor_no_limit_in_microseconds_is_known() -> None:
    found = _budgets(floor=None, inside=0, own=1.0, added=0)

    assert {budget.met for budget in found[:3]} == {None}


def test_a_wrong_answer_is_noted_and_leaves_budgets_unmeasured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(fleet: Fleet) -> None:
        raise WrongAnswer("no list")

    monkeypatch.setattr(Fleet, "fill", wrong)
    section = components.measure(QUICK)

    assert "not measured to the end: no list" in section.notes
    assert {budget.met for budget in section.budgets} == {None}


def test_a_changed_list_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    script = tmp_path / "notifying.py"
    script.write_text(_NOTIFYING)
    with Workspace() as workspace:
        server = PipeServer(Contender("notifying", (PYTHON, str(script))), workspace)
        with server.process:
            load = server.load(server.call_request, 20, in_flight=3)

    assert load.requests == 20


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Workspace() as workspace:
        fleet = Fleet(workspace, {"upstream": tools(50)})
        components.fill(fleet)
        yield fleet


@pytest.mark.slow
@pytest.mark.xdist_group("components-bench")
def test_every_row_answers_right_and_its_own_process_is_left_out(fleet: Fleet) -> None:
    apart = {}
    samples = Samples()
    for row in components.rows(fleet):
        with row.server.process:
            components.opened(row)
            for column, make in row.makes.items():
                samples.add(row.name, column, row.server.load(make, 20).cpu_us)
            if isinstance(row.server, ProxyPipe):
                apart[row.name] = row.server.process.upstreams()

    assert apart == {
        "run, a file": 0,
        "run, two files": 0,
        "wrap, the file's process": 1,
        "run, the file's process": 1,
        "serve, a server": 1,
        "serve, a component": 1,
        "serve, a component in process": 0,
    }
    assert None not in {budget.met for budget in components.budgets(samples)[:6]}


@pytest.mark.slow
@pytest.mark.xdist_group("components-bench")
def test_memory_is_that_of_a_gateway_with_twenty_components(fleet: Fleet) -> None:
    configs = components.memory_configs(fleet.workspace.path)
    sizes = {name: components.weighed(fleet, name, config) for name, config in configs.items()}

    assert len(sizes) == 4
    assert min(sizes.values()) > 10 * MB
    name = "20 components in process"
    gateway = components.serving(fleet, name, configs[name], "upstream")
    with gateway.process:
        gateway.open()
        assert gateway.use("tool_19__echo", text="x")["content"][0]["text"] == "x"
        status = gateway.use("gateway_status")["structuredContent"]

    assert len(status["servers"]) == 21
