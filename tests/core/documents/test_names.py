"""Servers' names: always the same for the same names, always fit, never two alike."""

import re

from hypothesis import given
from hypothesis import strategies as st

from portico.core.documents.names import is_valid_name, valid_name, valid_names

names = st.text(max_size=80) | st.text("ab_- /.é", max_size=60)


def test_what_fits() -> None:
    for name in ("a", "A-1", "a_b", "_a", "-", "x" * 40):
        assert is_valid_name(name), name
    for name in ("", "a__b", "a_", "_", "a b", "a.b", "é", "a\n", "x" * 41):
        assert not is_valid_name(name), name


@given(names)
def test_a_fitted_name_fits_and_stays(name: str) -> None:
    found = valid_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", found)
    assert "__" not in found
    assert not found.endswith("_")
    assert is_valid_name(found)
    assert valid_name(found) == found
    if is_valid_name(name):
        assert found == name


@given(st.lists(names, unique=True, max_size=12))
def test_all_of_them_are_kept_apart_in_order(several: list[str]) -> None:
    found = valid_names(several)
    assert list(found.values()) == several
    assert all(map(is_valid_name, found))
    assert valid_names(several) == found
