"""Each window's tasks work in the folder in which it was opened, whoever owns the gateway."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.delegation.desk_windows import DeskGateway, DeskWindow, call, mcp_agent, release
from tests.wrap.faults import until

FOLDER = ["folder"]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[DeskGateway]:
    agents = {"plain": mcp_agent(), "lead": mcp_agent(max_depth=1)}
    with DeskGateway(tmp_path, agents) as gateway:
        yield gateway


def opened(gateway: DeskGateway, name: str, *options: str) -> tuple[Path, DeskWindow]:
    """A window in a folder of its own."""
    folder = gateway.folder / name
    (folder / "inner").mkdir(parents=True)
    return folder, gateway.window(*options, folder=folder)


def test_each_window_delegates_in_its_own_folder(gateway: DeskGateway) -> None:
    first, one = opened(gateway, "first")
    second, two = opened(gateway, "second")
    assert len(gateway.owners()) == 1
    gate = gateway.pipe("gate")
    waiting = one.submit("plain", [FOLDER, ["read", str(gate)]])
    assert two.delegate("plain", FOLDER) == [str(second)]
    assert two.delegate("plain", FOLDER, cwd="inner") == [str(second / "inner")]
    assert two.delegate("plain", FOLDER, cwd=str(second / "inner")) == [str(second / "inner")]
    release(gate)
    assert one.outcomes(waiting) == [str(first), ""]


def test_the_folder_of_another_window_is_refused(gateway: DeskGateway) -> None:
    first, one = opened(gateway, "first")
    second, two = opened(gateway, "second")
    (second / "link").symlink_to(first)
    for cwd in (str(first), "../first", "link", "inner/../../first", "/"):
        assert "not inside the allowed folders" in two.refusal("plain", cwd=cwd)
    assert one.delegate("plain", FOLDER) == [str(first)]


def test_a_window_keeps_its_folder_at_the_next_owner(gateway: DeskGateway) -> None:
    first, one = opened(gateway, "first")
    second, two = opened(gateway, "second")
    for _ in range(2):
        (owner,) = gateway.owners()
        os.kill(owner, signal.SIGKILL)
        assert until(lambda owner=owner: owner not in gateway.owners())
        assert two.ask("ping", {})["result"] == {}
        assert two.delegate("plain", FOLDER) == [str(second)]
        assert one.delegate("plain", FOLDER) == [str(first)]
        assert "not inside the allowed folders" in one.refusal("plain", cwd=str(second))


def test_a_window_that_is_its_own_gateway_has_its_folder(gateway: DeskGateway) -> None:
    folder, window = opened(gateway, "alone", "--alone")
    assert window.delegate("plain", FOLDER) == [str(folder)]


def test_agents_alone_work_in_the_folder_of_their_server(gateway: DeskGateway) -> None:
    window = gateway.window(verb="run --agents")
    assert window.delegate("plain", FOLDER) == [str(gateway.work)]


def test_agents_do_not_see_the_tasks_of_any_window(gateway: DeskGateway) -> None:
    _, one = opened(gateway, "first")
    _, two = opened(gateway, "second")
    one.delegate("plain", FOLDER)
    (listed,) = two.delegate("lead", call("list_tasks"))
    assert listed["result"]["content"][0]["text"] == "there are no tasks"


def test_the_task_of_a_closed_window_completes_in_its_folder(gateway: DeskGateway) -> None:
    first, one = opened(gateway, "first")
    _, two = opened(gateway, "second")
    gate = gateway.pipe("gate")
    task = one.submit("plain", [FOLDER, ["read", str(gate)]])
    one.close_input()
    assert one.process.wait(60) == 0
    release(gate, "late")
    assert two.outcomes(task) == [str(first), "late"]
