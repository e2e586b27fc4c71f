"""The official conformance suite against the everything example, in both eras."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import conformance, run_node
from tests.support.proxy import recorded_http_server
from tests.support.running import EVERYTHING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("requirements", "least", "messages"),
    [("2025-11-25", 84, 75), ("2026-07-28", 152, 125)],
    ids=["2025-11-25", "2026-07-28"],
)
def test_the_official_suite_passes(
    requirements: str, least: int, messages: int, by: Sequence[str], tmp_path: Path
) -> None:
    with recorded_http_server(EVERYTHING, by=by) as proxy:
        done = run_node(
            conformance(),
            *("server", "--url", proxy.url(), "--requirements", requirements),
            *("-o", str(tmp_path)),
            timeout=240,
        )
        stderr = proxy.server.stderr()
    checks = _checks(tmp_path)
    failed = [
        f"{scenario}: {check['id']}: {check.get('errorMessage') or check.get('description')}"
        for scenario, check in checks
        if check["status"] == "FAILURE"
    ]
    assert failed == [], "\n".join(["", *failed, stderr])
    passed = sum(check["status"] == "SUCCESS" for _, check in checks)
    assert passed >= least, done.stdout
    assert proxy.problems == []
    assert proxy.checked > messages


def _checks(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Every check of the suite's own result files, but for tasks, which the example has not."""
    found = []
    for file in sorted(folder.rglob("checks.json")):
        scenario = file.parent.name
        if "tasks-" not in scenario:
            found += [(scenario, check) for check in json.loads(file.read_bytes())]
    return found
