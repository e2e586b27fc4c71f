"""The official conformance suite judges our logins: all of its scenarios of OAuth for clients."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.client_suite import LEGACY_VERSION, MODERN_VERSION, judged
from tests.support.node import conformance, run_node
from tests.support.shared import ROOT

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parent / "conformance_client.py"
_SETS = ROOT / ".tools/node_modules/@modelcontextprotocol/conformance/requirements"
_SCENARIO = re.compile(r"^\s+- (?:scenario: )?(auth/[a-z0-9-]+)", re.MULTILINE)
LEFT_OUT = {
    "auth/enterprise-managed-authorization": "an extension: a grant that Portico does not have",
    "auth/dpop": "an extension: Portico sends bearer tokens only",
    "auth/dpop-nonce": "an extension: Portico sends bearer tokens only",
    "auth/wif-jwt-bearer": "an extension: a grant that Portico does not have",
}
"""Each scenario that is not run, and why."""
EXTENSIONS = ("auth/client-credentials-jwt", "auth/client-credentials-basic")
OLD = ("auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback")
"""In no set of requirements: servers of 2025-03-26."""


def scenarios(version: str) -> list[str]:
    """The suite's own list; empty without the suite, which the test below reports."""
    path = _SETS / f"{version}.yaml"
    return _SCENARIO.findall(path.read_text()) if path.exists() else []


@pytest.mark.parametrize(
    ("version", "scenario"),
    [
        (version, name)
        for version in (LEGACY_VERSION, MODERN_VERSION)
        for name in scenarios(version)
        if name not in LEFT_OUT
    ]
    + [("2025-03-26", name) for name in OLD],
)
async def test_the_suite_passes_our_logins(
    version: str, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    is_forced = scenario in EXTENSIONS
    said = await judged(CLIENT, version=version, scenario=scenario, is_forced=is_forced)
    assert "0 failed, 0 warnings" in said, "the suite warns about a SHOULD"


@pytest.mark.parametrize(("version", "required"), [(LEGACY_VERSION, 14), (MODERN_VERSION, 25)])
async def test_every_scenario_of_the_suite_is_run_or_left_out_with_a_reason(
    version: str, required: int
) -> None:
    listed = await asyncio.to_thread(run_node, conformance(), "list", "--requirements", version)
    found = set(re.findall(r"auth/[a-z0-9-]+", listed.stdout))
    assert found == set(scenarios(version))
    assert len(found) == required + len(EXTENSIONS) + len(LEFT_OUT)
    assert set(LEFT_OUT) < found
