"""The official suite against any URL, as a table that two runs can be compared by."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.node import conformance, run_node

Check = dict[str, Any]
_AT_ONCE = 3
"""Scenarios that run side by side; they mostly wait."""


def run_suite(url: str, requirements: str, outdir: Path) -> dict[str, str]:
    """Run the suite; the status of every check as `scenario:check`, without those of tasks.

    A check that a scenario reports again gets a number: `scenario:check#2`.
    """
    done = run_node(
        conformance(),
        *("server", "--url", url, "--requirements", requirements, "-o", str(outdir)),
        timeout=240,
    )
    table = statuses(outdir)
    if not table:
        raise RuntimeError(f"the suite left no results:\n{done.stdout}\n{done.stderr}")
    return table


def run_scenarios(url: str, scenarios: Sequence[str], outdir: Path) -> dict[str, list[Check]]:
    """Run scenarios of the newest version side by side; the checks of each."""

    def run(scenario: str) -> list[Check]:
        folder = outdir / scenario
        options = ("--spec-version", "2026-07-28", "--force", "-o", str(folder))
        done = run_node(
            conformance(), "server", "--url", url, "--scenario", scenario, *options, timeout=120
        )
        files = [*folder.rglob("checks.json")]
        if not files:
            raise RuntimeError(f"{scenario} left no results:\n{done.stdout}\n{done.stderr}")
        return [check for file in files for check in json.loads(file.read_bytes())]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(scenarios, pool.map(run, scenarios), strict=True))


def statuses(outdir: Path) -> dict[str, str]:
    """The checks in a folder of results."""
    table: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for file in sorted(outdir.rglob("checks.json")):
        # The suite names a folder after scenario and time, and the time would tell runs apart.
        scenario = _scenario(file.parent.name)
        if scenario.startswith("tasks-"):
            continue
        for check in json.loads(file.read_bytes()):
            key = f"{scenario}:{check['id']}"
            seen[key] += 1
            table[key if seen[key] == 1 else f"{key}#{seen[key]}"] = check["status"]
    return table


def count(table: dict[str, str], status: str) -> int:
    """How many checks have a status."""
    return sum(found == status for found in table.values())


def _scenario(folder: str) -> str:
    return re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder)
