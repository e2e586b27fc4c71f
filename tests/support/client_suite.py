"""The official conformance suite's scenarios for clients; tests/login has those about OAuth."""

import asyncio
import sys
from pathlib import Path

from tests.support import node
from tests.support.shared import ROOT

_BOTH = ("tools_call", "json-schema-2020-12-preservation")
LEGACY = ("initialize", "sse-retry", "elicitation-sep1034-client-defaults", *_BOTH)
MODERN = (
    "request-metadata",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "sep-2322-client-request-state",
    *_BOTH,
)
LEGACY_VERSION, MODERN_VERSION = "2025-11-25", "2026-07-28"


async def judged(
    client: Path, *words: str, version: str, scenario: str, is_forced: bool = False
) -> str:
    """Have the suite run a client, a Python file, through a scenario, which it must pass; return
    its words.

    An extension belongs to no version, and must be forced.
    """
    run = await asyncio.to_thread(
        node.run_node,
        node.conformance(),
        "client",
        "--command",
        " ".join((sys.executable, str(client.relative_to(ROOT)), *words)),
        "--scenario",
        scenario,
        "--spec-version",
        version,
        "--timeout",
        "60000",
        *(("--force",) if is_forced else ()),
        timeout=90,
    )
    said = run.stdout + run.stderr
    assert "OVERALL: PASSED" in said, said
    assert run.returncode == 0
    return said
