"""Annotations that are only text: `from __future__ import annotations`, closures, forward names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.derive import derive_prompt, derive_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from portico import Context


def later(place: Later, many: list[Later | None]) -> Later:
    return place


@dataclass
class Later:
    name: str


def test_names_of_the_module_are_found_also_when_defined_later() -> None:
    derived = derive_tool(later)

    assert derived.definition["inputSchema"]["properties"]["place"] == {"$ref": "#/$defs/Later"}
    assert derived.definition["outputSchema"]["type"] == "object"
    assert derived.bind({"place": {"name": "x"}, "many": [None]}) == (
        [],
        {"place": Later("x"), "many": [None]},
    )


def test_the_context_need_not_be_importable() -> None:
    def tool(a: int, ctx: Context, more: Context | None = None) -> None: ...
    def one(a: int, ctx: Context | None = None) -> None: ...

    assert derive_tool(one).context_parameter == "ctx"
    with pytest.raises(DefinitionError, match="two parameters for the context"):
        derive_tool(tool)


def test_the_context_is_known_by_what_its_annotation_means() -> None:
    from portico import Context as Real

    class Own(Real): ...

    def otherwise(a: int, ctx: Real) -> None: ...
    def maybe(a: int, ctx: Real | None = None) -> None: ...
    def noted(a: int, ctx: Annotated[Real, "to talk back"]) -> None: ...
    def own(a: int, ctx: Own) -> None: ...

    for tool in (otherwise, maybe, noted, own):
        derived = derive_tool(tool)
        assert derived.context_parameter == "ctx"
        assert list(derived.definition["inputSchema"]["properties"]) == ["a"]


def test_a_class_in_a_closure_is_found() -> None:
    assert derive_tool(_in_a_closure()).bind({"value": {"x": 1}})[1]["value"].x == 1


def _in_a_closure() -> Callable[..., Any]:
    @dataclass
    class Local:
        x: int

    def tool(value: Local) -> int:
        return Local(value.x).x

    return tool


def test_a_closure_that_is_not_filled_yet_does_no_harm() -> None:
    def tool(value: int) -> int:
        return helper(value)

    assert derive_tool(tool).definition["name"] == "tool"

    def helper(value: int) -> int:
        return value


def test_a_class_beside_a_nested_function_is_found_while_its_maker_runs() -> None:
    @dataclass
    class Local:
        x: int

    def tool(value: Local) -> int:
        return value.x

    assert derive_tool(tool).bind({"value": {"x": 1}})[1]["value"] == Local(1)


def test_a_name_that_means_nothing_is_refused_with_the_parameter() -> None:
    def tool(value: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def returns() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    tool_error = _refused(tool)
    assert "tool(): parameter value: cannot resolve its annotation" in tool_error
    assert "name 'Nowhere' is not defined" in tool_error
    assert "returns(): the return type: cannot resolve" in _refused(returns)


def test_an_annotation_that_is_no_expression_is_refused() -> None:
    def tool(value: int) -> None: ...

    tool.__annotations__["value"] = "list["

    assert 'annotation "list["' in _refused(tool)


def test_an_attribute_that_does_not_exist_is_refused() -> None:
    def tool(value: pytest.Nowhere) -> None: ...  # type: ignore[name-defined]

    assert "Nowhere" in _refused(tool)


def test_prompts_have_quoted_annotations_too() -> None:
    def prompt(count: int) -> str:
        return str(count)

    assert derive_prompt(prompt).bind({"count": "3"}) == ([], {"count": 3})


def _refused(function: Callable[..., Any]) -> str:
    with pytest.raises(DefinitionError) as caught:
        derive_tool(function)
    return str(caught.value)
