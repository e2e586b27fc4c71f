"""The official suite finds a server behind `wrap` as it finds the server itself."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.rigs.conformance import count, run_suite
from tests.wrap.wrapped import everything_over, lost, wrapped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # Checks of the suite wait for fractions of a second, and one direct run serves all.
    pytest.mark.xdist_group("wrap-suite"),
]

LEAST = {"2025-11-25": 84, "2026-07-28": 152}
CANNOT = {
    # The tool closes its own stream in the middle, and a server on pipes has none to close.
    ("stdio", "2025-11-25"): {"server-sse-polling:server-sse-disconnect-resume"},
}
"""The checks that pass directly and cannot pass through `wrap`."""


@pytest.mark.parametrize("requirements", LEAST)
@pytest.mark.parametrize("kind", ["http", "stdio"])
def test_every_check_that_passes_directly_passes_through_wrap(
    kind: str,
    requirements: str,
    by: Sequence[str],
    direct: Callable[[str], dict[str, str]],
    tmp_path: Path,
) -> None:
    expected = direct(requirements)
    cannot = CANNOT.get((kind, requirements), set())
    with everything_over(kind, "both") as target, wrapped(target, by=by) as url:
        found = run_suite(url, requirements, tmp_path)
        assert lost(expected, found) == cannot
    assert "FAILURE" not in found.values()
    assert count(found, "SUCCESS") + len(cannot) >= LEAST[requirements]
