"""The official suite's scenarios for tasks: at a server, through `wrap`, and at a server's door."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rigs.conformance import run_scenarios
from tests.serve.gateway import Gateway, command, written
from tests.support.running import http_server
from tests.support.shared import ROOT
from tests.wrap.wrapped import wrapped

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SERVER = ROOT / "tests" / "rigs" / "tasks_server.py"
PASSED = {
    "tasks-lifecycle": 9,
    "tasks-capability-negotiation": 5,
    "tasks-wire-fields": 4,
    "tasks-request-state-removal": 3,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-status-notifications": 0,  # the suite skips its only check itself
    "tasks-required-task-error": 3,
    "tasks-mrtr-composition": 2,
}
"""By scenario, the number of checks that pass."""


@contextmanager
def reached(door: str, folder: Path) -> Iterator[str]:
    """The URL of the server with tasks, directly or through Portico."""
    python = [sys.executable, str(SERVER)]
    if door == "direct":
        with http_server(SERVER) as server:
            yield server.url
    elif door == "wrap":
        with wrapped(["--", *python]) as url:
            yield url
    else:
        config = written(folder / "portico.toml", {"rig": command(python)})
        with Gateway(folder / "home", config) as gateway:
            yield f"http://localhost:{gateway.port}/servers/rig/mcp"


@pytest.mark.parametrize("door", ["direct", "wrap", "server"])
def test_the_official_scenarios_for_tasks_pass(door: str, tmp_path: Path) -> None:
    with reached(door, tmp_path) as url:
        found = run_scenarios(url, [*PASSED], tmp_path / "results")
    failed = [
        (scenario, check["id"], check.get("errorMessage"))
        for scenario, checks in found.items()
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    ]
    assert failed == []
    passed = {
        scenario: sum(check["status"] == "SUCCESS" for check in checks)
        for scenario, checks in found.items()
    }
    assert passed == PASSED
