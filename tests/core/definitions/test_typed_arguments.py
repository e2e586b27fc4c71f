"""Arguments of Portico's own tools: converted, or refused in the words of schemas."""

from typing import Any

import pytest
from msgspec import Struct

from portico.core.definitions.typed_arguments import typed_arguments


class Wanted(Struct, forbid_unknown_fields=True):
    name: str
    limit: int = 5
    names: list[str] = []
    server: str | None = None


def test_null_is_omitted_and_numbers_may_be_text() -> None:
    assert typed_arguments({"name": "x", "limit": "7", "server": None}, Wanted) == Wanted("x", 7)
    assert typed_arguments({"name": "x", "limit": 7.0}, Wanted) == Wanted("x", 7)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name: missing (required)"),
        ({"name": "x", "limt": 3}, 'unknown field "limt" (did you mean "limit"?)'),
        ({"name": "x", "zzz": 3}, 'unknown field "zzz"; known: name, limit, names, server'),
        ({"name": "x", "limit": "many"}, "limit: expected integer, got string"),
        ({"name": "x", "names": ["a", []]}, "names[1]: expected string, got array"),
        ({"name": {}, "limit": 1}, "name: expected string, got object"),
        ({"name": "x", "server": []}, "server: expected string, got array"),
    ],
)
def test_a_mistake_is_named_as_a_schema_would(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        typed_arguments(given, Wanted)
    assert str(raised.value) == said
