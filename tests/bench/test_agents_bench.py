"""What is measured of agents is what it says, and held against its limits."""

from collections.abc import Iterator

import pytest

from bench.delegating import AgentGateway, DelegatingPipe, locked, quick_agent
from bench.process import Workspace
from bench.rounds import Samples
from bench.scale import QUICK
from bench.tables import agents, agents_start
from bench.workload import WrongAnswer

PROMISES = (
    "agents, CPU of a delegation (5 ms, and its commits)",
    "agents, tasks at once that complete",
    "agents, memory of an idle connection",
    "agents, all tools",
)


def _samples(*, cpu: float, done: float, kilobytes: float, tokens: float) -> Samples:
    samples = Samples()
    for row, column, figure in (
        ("a delegation", "CPU ms", cpu),
        ("a delegation", "commits", 10),
        ("a delegation", "CPU ms of a commit", 0.1),
        ("100 tasks", "completed", done),
        ("an idle connection", "KB", kilobytes),
        ("a gateway with five agents", "tokens", tokens),
    ):
        samples.add(row, column, figure)
    return samples


def test_the_limit_of_a_delegation_includes_the_commits_of_the_same_run() -> None:
    found = agents.budgets(_samples(cpu=5.9, done=100, kilobytes=299, tokens=1599))

    assert [budget.promise for budget in found] == [*PROMISES]
    assert [budget.limit for budget in found] == [
        "<= 6 ms",
        ">= 100",
        "<= 300 KB",
        "<= 1600 tokens",
    ]
    assert {budget.met for budget in found} == {True}


def test_delegations_that_cost_more_are_missed() -> None:
    found = agents.budgets(_samples(cpu=6.1, done=99, kilobytes=301, tokens=1601))

    assert {budget.met for budget in found} == {False}


def test_a_wrong_answer_is_noted_and_leaves_the_budgets_of_agents_unmeasured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(gateway: AgentGateway, *program: str) -> DelegatingPipe:
        raise WrongAnswer("no gateway")

    monkeypatch.setattr(AgentGateway, "start", wrong)
    monkeypatch.setattr(agents_start, "measure", lambda *_: None)
    section = agents.measure(QUICK)

    assert "not measured to the end: no gateway" in section.notes
    assert {budget.met for budget in section.budgets} == {None}


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with Workspace() as workspace:
        yield workspace


@pytest.mark.slow
@pytest.mark.xdist_group("agents-bench")
def test_warm_delegations_are_counted_and_agents_are_left_out(workspace: Workspace) -> None:
    agent = quick_agent(pool={"min": 2, "max": 2})
    gateway = AgentGateway(workspace, "agents", [agent]).start()
    with gateway.process:
        gateway.open()
        gateway.until_warm(2)
        found = gateway.delegate()
        gateway.until_warm(2)
        cpu_s = gateway.settled_cpu_s()

        assert found["result"] == "done"
        assert found["timings"]["is_warm"]
        assert gateway.completed() == 1
        assert gateway.running() == 2
        assert cpu_s > 0
        assert (
            len(gateway.process.everyone()) - gateway.process.upstreams() == 4
        )  # the guardians and the agents' keepers


@pytest.mark.slow
@pytest.mark.xdist_group("agents-bench")
def test_agents_behind_a_lock_run_at_the_same_time(workspace: Workspace) -> None:
    lock = workspace.path / "lock"
    lock.touch()
    agent = quick_agent("quick", str(lock), pool={"max": 0})
    gateway = AgentGateway(workspace, "agents", [agent]).start()
    with gateway.process:
        gateway.open()
        with locked(lock):
            gateway.begin(5)
            gateway.until_running(5)
        gateway.finish()

        assert gateway.completed() == 5
