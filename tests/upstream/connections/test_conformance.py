"""The official conformance suite judges our client: all scenarios that are not about OAuth."""

from pathlib import Path

import pytest

from tests.support.client_suite import LEGACY, LEGACY_VERSION, MODERN, MODERN_VERSION, judged

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parent / "conformance_client.py"


@pytest.mark.parametrize(
    ("version", "scenario"),
    [(LEGACY_VERSION, name) for name in LEGACY] + [(MODERN_VERSION, name) for name in MODERN],
)
async def test_the_suite_passes_our_client(version: str, scenario: str) -> None:
    await judged(CLIENT, version=version, scenario=scenario)
