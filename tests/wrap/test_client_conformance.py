"""The official suite judges what `wrap` sends to a server in a client's name."""

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
# The other scenarios are about OAuth: `wrap` sends the headers it is given and obtains none.
SAME = [("legacy", "2025-11-25", name) for name in LEGACY]
SAME += [("modern", "2026-07-28", name) for name in MODERN]
# What is about definitions passes as bytes, in whatever era.
ACROSS = [("modern", "2025-11-25", name) for name in LEGACY if "schema" not in name]
ACROSS += [("legacy", "2026-07-28", name) for name in MODERN if "schema" not in name]
EVERY_POST = ("request-metadata", "http-standard-headers")
"""These judge every POST; for a legacy client `wrap` greets a server the legacy way first."""
CLIENT = Path(__file__).parent / "conformance_client.py"


@pytest.mark.parametrize(("era", "version", "scenario"), [*SAME, *ACROSS])
async def test_the_suite_passes_a_client_behind_wrap(era: str, version: str, scenario: str) -> None:
    only_modern = "--era modern" if era == "legacy" and scenario in EVERY_POST else ""
    run = await asyncio.to_thread(
        node.run_node,
        node.conformance(),
        "client",
        "--command",
        f"{sys.executable} {CLIENT.relative_to(ROOT)} {era} {only_modern}".strip(),
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
