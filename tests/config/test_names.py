"""Servers' names: always the same for the same names, always fit, never two alike."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from portico.config.names import all_fitted, fits, fitted

names = st.text(max_size=80) | st.text("ab_- /.é", max_size=60)


def test_what_fits() -> None:
    for name in ("a", "A-1", "a_b", "_a", "-", "x" * 40):
        assert fits(name), name
    for name in ("", "a__b", "a_", "_", "a b", "a.b", "é", "a\n", "x" * 41):
        assert not fits(name), name


@settings(deadline=None)
@given(names)
def test_a_fitted_name_fits_and_stays(name: str) -> None:
    found = fitted(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", found)
    assert "__" not in found
    assert not found.endswith("_")
    assert fits(found)
    assert fitted(found) == found
    if fits(name):
        assert found == name


@settings(deadline=None)
@given(st.lists(names, unique=True, max_size=12))
def test_all_of_them_are_kept_apart_in_order(several: list[str]) -> None:
    found = all_fitted(several)
    assert list(found.values()) == several
    assert all(map(fits, found))
    assert all_fitted(several) == found
