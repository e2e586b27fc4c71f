"""The official conformance suite judges our client: all scenarios that are not about OAuth."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support import node
from tests.support.shared import ROOT

pytestmark = pytest.mark.slow

BOTH = ("tools_call", "json-schema-2020-12-preservation")
LEGACY = ("initialize", "sse-retry", "elicitation-sep1034-client-defaults", *BOTH)
MODERN = (
    "request-metadata",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "sep-2322-client-request-state",
    *BOTH,
)
CLIENT = Path(__file__).parent / "conformance_client.py"


@pytest.mark.parametrize(
    ("version", "scenario"),
    [("2025-11-25", name) for name in LEGACY] + [("2026-07-28", name) for name in MODERN],
)
async def test_the_suite_passes_our_client(version: str, scenario: str) -> None:
    run = await asyncio.to_thread(
        node.run_node,
        node.conformance(),
        "client",
        "--command",
        f"{sys.executable} {CLIENT.relative_to(ROOT)}",
        "--scenario",
        scenario,
        "--spec-version",
        version,
        "--timeout",
        "60000",
        timeout=90,
    )
    said = run.stdout + run.stderr
    assert "OVERALL: PASSED" in said, said
    assert run.returncode == 0
