"""Tests with several parameters lose no pair of them in `make test`, and nothing in `make soak`."""

from itertools import combinations, product

import pytest

from tests.support.pairs import pairs
from tests.support.soak import IS_SOAK, each


@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 2, 4), (3, 2, 2, 2), (4, 3, 2)])
def test_every_pair_of_values_is_there(sizes: tuple[int, ...]) -> None:
    axes = [[f"{axis}{value}" for value in range(size)] for axis, size in enumerate(sizes)]
    chosen = pairs(*axes, all=False)
    found = {pair for one in chosen for pair in combinations(one, 2)}
    wanted = {pair for one in product(*axes) for pair in combinations(one, 2)}
    assert found == wanted
    assert len(chosen) < len(list(product(*axes)))


def test_two_parameters_and_the_soak_keep_every_combination() -> None:
    assert pairs("ab", "cd", all=False) == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    assert len(pairs("ab", "cd", "ef", all=True)) == 8


def test_two_values_do_not_always_come_with_the_same_third() -> None:
    chosen = pairs("abcd", "xy", "xy", all=False)
    assert [first for first, one, other in chosen if one == other] == ["a", "a", "c", "c"]
    assert [first for first, one, other in chosen if one != other] == ["b", "b", "d", "d"]


def test_each_value_of_an_axis_is_chosen() -> None:
    chosen = each("ab", "xyz")
    assert [set(values) for values in zip(*chosen, strict=True)] == [{"a", "b"}, {"x", "y", "z"}]
    assert len(chosen) == (6 if IS_SOAK else 3)
