"""Tools from methods, partials, decorated functions and callable objects."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

from portico.core.definitions.binding import Derived
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.derive import derive_tool


def test_methods_partials_decorated_functions_and_objects_are_functions_too() -> None:
    class Tools:
        """Some tools."""

        def method(self, a: int) -> None:
            """A method."""

        @classmethod
        def of_class(cls, a: int) -> None: ...

        @staticmethod
        def static(a: int) -> None: ...

        def __call__(self, a: int) -> None:
            """A call."""

    def plain(b: str, a: int) -> None: ...

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> None: ...

        return wrapper

    callables: dict[str, Any] = {
        "method": Tools().method,
        "of_class": Tools.of_class,
        "static": Tools.static,
        "Tools": Tools(),
        "plain": partial(plain, "b"),
    }
    callables["plain"] = decorated(callables["plain"].func)
    for name, function in callables.items():
        derived = derive_tool(function)
        assert derived.definition["name"] == name
        assert derived.definition["inputSchema"]["properties"]["a"] == {"type": "integer"}
    assert list(_properties(derive_tool(partial(plain, "b")))) == ["a"]


def test_what_is_bound_by_name_is_neither_shown_nor_taken() -> None:
    def fetch(query: str, key: str) -> str:
        return query + key

    bound = partial(fetch, key="a secret")
    derived = derive_tool(bound)

    assert "secret" not in str(derived.definition)
    assert list(_properties(derived)) == ["query"]
    args, kwargs = derived.bind({"query": "x"})
    assert bound(*args, **kwargs) == "xa secret"


def test_a_method_without_its_object_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Quiet.tell\(\): parameter self: .* of an instance"):
        derive_tool(Quiet.tell)


class Quiet:
    def tell(self, a: int) -> int:
        return a

    def __call__(self, a: int) -> int:
        return a


def test_an_object_whose_call_has_no_docstring_has_no_description() -> None:
    assert "description" not in derive_tool(Quiet()).definition


def _properties(derived: Derived) -> dict[str, Any]:
    found: dict[str, Any] = derived.definition["inputSchema"]["properties"]
    return found
