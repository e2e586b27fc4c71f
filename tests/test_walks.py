"""How far a request walks: the modules it enters and the functions it calls, the second time."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs.pages import section
from tests.support.walks import Walk, budgeted, executing, executing_wrongly, library, listing

Measure = Callable[[Path], Walk]

LIMITS = [
    (listing, 10, 17),
    (executing, 25, 66),
    (budgeted, 32, 86),
    (executing_wrongly, 29, 112),
    (library, 13, 41),
]
"""The most modules and functions; raised only to be rid of a shortcut (decision 44)."""


@cache
def walked(measure: Measure) -> Walk:
    with TemporaryDirectory(prefix="portico-") as folder:
        return measure(Path(folder))


@pytest.mark.parametrize(("measure", "modules", "functions"), LIMITS)
def test_a_request_walks_no_further_than_it_must(
    measure: Measure, modules: int, functions: int
) -> None:
    walk = walked(measure)
    assert 0 < len(walk.modules) <= modules, str(walk)
    assert len(walk.calls) <= functions, str(walk)


@pytest.mark.parametrize("measure", [measure for measure, *_ in LIMITS])
def test_the_walks_are_as_contributing_shows_them(measure: Measure) -> None:
    walk = walked(measure)
    assert walk.row in section("CONTRIBUTING.md", "Walks").splitlines(), f"it is now:\n{walk.row}"
