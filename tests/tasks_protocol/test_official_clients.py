"""The official clients that implement tasks follow them, whatever the era of the server."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.serve.gateway import serve_command
from tests.support.node import run_node, ts
from tests.tasks_protocol.doors import ERAS, Doors, tasks_server
from tests.wrap.faults import wrap_command

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-doors")]

CALLS: dict[str, dict[str, Any]] = {
    "slow_compute": {"seconds": 0.1, "label": "it"},
    "failing_job": {},
    "protocol_error_job": {},
    "multi_input": {},
    "ask_twice": {"label": "official"},
}
PATHS = {"merged": "/mcp", "server": "/servers/{}/mcp", "wrap": "/mcp"}
DONE = "computed it in 0.1 s"


def what_it_saw(**target: Any) -> dict[str, Any]:
    """What an official client saw."""
    done = run_node(ts("tasks.mjs"), json.dumps({"calls": CALLS, **target}))
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def check_legacy(seen: dict[str, Any], *, is_known: bool) -> None:
    """All that the client of 2025-11-25 should see; one that is known can list its tasks."""
    assert seen.pop("tasks")["requests"] == {"tools": {"call": {}}}
    listed = seen.pop("listed")
    assert listed >= len(CALLS) if is_known else listed is None
    assert seen.pop("support") == "optional"
    assert {told[0] for told in seen.values()} == {"working"}
    assert seen["slow_compute"][-1] == DONE
    for name in ("failing_job", "protocol_error_job"):  # this client does not fetch the reason
        assert seen[name][-1].startswith("thrown: MCP error -32603: Task ")
    assert seen["multi_input"][-1] == "accept accept"
    assert seen["ask_twice"][-1].startswith("accept accept, run ")


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("door", PATHS)
def test_the_typescript_sdk_follows_tasks_of_2025_11_25_over_http(
    doors: Doors, door: str, server: str
) -> None:
    prefix = f"{server}__" if door == "merged" else ""
    url = f"http://127.0.0.1:{doors.port(door, server)}{PATHS[door].format(server)}"
    check_legacy(what_it_saw(version="2025-11-25", url=url, prefix=prefix), is_known=False)


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("door", ["merged", "wrap"])
def test_the_typescript_sdk_follows_tasks_of_2025_11_25_over_stdio(
    doors: Doors, tmp_path: Path, door: str, server: str
) -> None:
    words = wrap_command(tmp_path / "home", "--era", server, "--", *tasks_server())
    if door == "merged":
        words = serve_command(tmp_path / "home", doors.config())
    prefix = f"{server}__" if door == "merged" else ""
    check_legacy(what_it_saw(version="2025-11-25", command=words, prefix=prefix), is_known=True)


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("door", PATHS)
def test_the_package_of_the_extension_follows_tasks_of_2026_07_28(
    doors: Doors, door: str, server: str
) -> None:
    prefix = f"{server}__" if door == "merged" else ""
    url = f"http://127.0.0.1:{doors.port(door, server)}{PATHS[door].format(server)}"
    seen = what_it_saw(version="2026-07-28", url=url, prefix=prefix)
    assert {told[0] for told in seen.values()} == {"task"}
    assert seen["slow_compute"][1] == DONE
    assert seen["failing_job"][1] == "error: the job failed"
    assert "the machinery broke" in seen["protocol_error_job"][1]
    assert seen["multi_input"][1] == "accept accept"
    assert seen["ask_twice"][1].startswith("accept accept, run ")
