"""The types of values, which must agree with the validator."""

from typing import Any

import pytest

from portico.core.definitions.keywords import DIALECTS, TYPES
from portico.core.definitions.schema import compiled
from portico.core.definitions.violations import has_type

_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2**70, -(2**63), 1.0, -0.0, 1.5, 1e20, 1e300, 5e-324),
    *("", "a", "1", [], [1], (1,), {}, {"a": None}),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("types", [[name] for name in TYPES] + [["integer", "null"], ["string"]])
def test_a_type_is_told_as_the_validator_tells_it(dialect: str, types: list[str]) -> None:
    validator = compiled({"$schema": dialect, "type": types})
    wrong = [v for v in _VALUES if has_type(types, v, dialect) is not validator.is_valid(v)]
    assert wrong == []
