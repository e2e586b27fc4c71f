"""How far a request walks: the functions that it calls in real processes, the second time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.walks import Walk, budgeted, executing, executing_wrongly, library, listing

LIMITS = [
    (listing, 20),
    (executing, 134),
    (budgeted, 157),
    (executing_wrongly, 187),
    (library, 49),
]
"""The most function calls: 1.2 times their number when the limits were set (decision 101)."""


@pytest.mark.parametrize(("measure", "most"), LIMITS)
def test_a_request_walks_no_further_than_it_must(
    measure: Callable[[Path], Walk], most: int, tmp_path: Path
) -> None:
    walk = measure(tmp_path)
    assert 0 < len(walk.calls) <= most, str(walk)
