"""The official suite judges what `wrap` sends to a server in a client's name."""

from pathlib import Path

import pytest

from tests.support.client_suite import LEGACY, LEGACY_VERSION, MODERN, MODERN_VERSION, judged

pytestmark = pytest.mark.slow

# The other scenarios are about OAuth: `wrap` sends the headers it is given and obtains none.
SAME = [("legacy", LEGACY_VERSION, name) for name in LEGACY]
SAME += [("modern", MODERN_VERSION, name) for name in MODERN]
# Definitions pass as bytes in both eras.
ACROSS = [("modern", LEGACY_VERSION, name) for name in LEGACY if "schema" not in name]
ACROSS += [("legacy", MODERN_VERSION, name) for name in MODERN if "schema" not in name]
EVERY_POST = ("request-metadata", "http-standard-headers")
"""These check every POST; for a legacy client `wrap` first tries the legacy handshake."""
CLIENT = Path(__file__).parent / "conformance_client.py"


@pytest.mark.parametrize(("era", "version", "scenario"), [*SAME, *ACROSS])
async def test_the_suite_passes_a_client_behind_wrap(era: str, version: str, scenario: str) -> None:
    only_modern = ("--era", "modern") if era == "legacy" and scenario in EVERY_POST else ()
    await judged(CLIENT, era, *only_modern, version=version, scenario=scenario)
