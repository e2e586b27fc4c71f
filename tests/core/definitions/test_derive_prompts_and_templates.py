"""Prompts and resource templates from functions, whose arguments are sent as text."""

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

import pytest
from msgspec import Meta

from portico import Context, InvalidParams
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.derive import derive_prompt, derive_template


class Tone(Enum):
    KIND = "kind"
    STERN = "stern"


def refused(derive: Callable[[], Any]) -> str:
    with pytest.raises(DefinitionError) as caught:
        derive()
    return str(caught.value)


# Prompts.


def test_a_prompt_has_its_parameters_as_arguments() -> None:
    def greet(name: str, tone: Tone = Tone.KIND, *, context: Context) -> str:
        """Greet someone.

        :param name: Who is greeted.
        """
        return name

    derived = derive_prompt(greet, title="Greeting", icons=[{"src": "a:b"}], meta={"k": 1})

    assert derived.definition == {
        "name": "greet",
        "title": "Greeting",
        "description": "Greet someone.",
        "arguments": [
            {"name": "name", "description": "Who is greeted.", "required": True},
            {"name": "tone", "required": False},
        ],
        "icons": [{"src": "a:b"}],
        "_meta": {"k": 1},
    }
    assert derived.context_parameter == "context"


def test_a_prompt_without_arguments_lists_none() -> None:
    assert derive_prompt(lambda: "hi", name="hi").definition == {"name": "hi"}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (str, "3", "3"),
        (int, "3", 3),
        (float, "3.5", 3.5),
        (bool, "true", True),
        (int | None, "null", None),
        (Tone, "stern", Tone.STERN),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (str, "[1]", "[1]"),
        (Any, "x", "x"),
        (Annotated[int, Meta(ge=1)], "7", 7),
    ],
)
def test_text_becomes_the_annotated_type(kind: Any, text: str, value: Any) -> None:
    def prompt(value: Any) -> Any: ...

    prompt.__annotations__ = {"value": kind}

    assert derive_prompt(prompt).bind({"value": text}) == ([], {"value": value})


def test_text_that_is_not_of_the_type_is_the_callers_error() -> None:
    def prompt(count: int, items: list[int] = []) -> Any: ...  # noqa: B006

    derived = derive_prompt(prompt)

    with pytest.raises(InvalidParams, match="prompt prompt: count: expected int, got str"):
        derived.bind({"count": "many"})
    with pytest.raises(InvalidParams, match="prompt prompt: items: expected array, got str"):
        derived.bind({"count": "1", "items": "[1"})
    with pytest.raises(InvalidParams, match=r"prompt prompt: count: missing \(required\)"):
        derived.bind({})


def test_a_prompt_that_takes_what_text_cannot_be_is_refused() -> None:
    def prompt(value: Callable[[], int]) -> Any: ...

    assert "parameter value: its type has no JSON Schema" in refused(lambda: derive_prompt(prompt))


# Resources and templates.


def test_a_template_has_its_variables_as_parameters() -> None:
    def note(name: str, page: int = 1) -> str:
        """One note."""
        return name

    derived = derive_template(note, "note://{name}{?page}")

    assert derived.definition == {
        "name": "note",
        "description": "One note.",
        "uriTemplate": "note://{name}{?page}",
    }
    assert derived.bind({"uri": "note://a?page=2", "name": "a", "page": "2"}) == (
        [],
        {"name": "a", "page": 2},
    )


def test_a_plain_uri_gives_a_resource() -> None:
    def readme() -> Any: ...

    derived = derive_template(readme, "file:///readme")

    assert derived.definition == {"name": "readme", "uri": "file:///readme"}
    assert derived.bind({"uri": "file:///readme"}) == ([], {})


def test_a_resource_without_a_name_goes_by_its_uri() -> None:
    assert derive_template(lambda: "", "a:b").definition["name"] == "a:b"


def test_the_uri_and_the_context_can_be_asked_for() -> None:
    def read(uri: str, context: Context, path: str) -> Any: ...

    derived = derive_template(read, "x://{+path}")

    assert derived.bind({"uri": "x://a", "path": "a"}, "ctx") == (
        [],
        {"uri": "x://a", "path": "a", "context": "ctx"},
    )


def test_variables_and_parameters_must_agree() -> None:
    def read(name: str) -> Any: ...
    def more(name: str, other: str) -> Any: ...

    assert "read(): has no parameter for {id}" in refused(
        lambda: derive_template(read, "x://{name}/{id}")
    )
    assert "parameter other: is not a variable of the URI template" in refused(
        lambda: derive_template(more, "x://{name}")
    )
    assert "parameter name: is not a variable" in refused(lambda: derive_template(read, "x://y"))


def test_a_variable_that_may_be_left_out_needs_a_default() -> None:
    def read(name: str) -> Any: ...

    assert "parameter name: needs a default: a URI may leave it out" in refused(
        lambda: derive_template(read, "x://y{?name}")
    )


def test_a_wrong_template_or_uri_is_refused_with_the_function() -> None:
    def read(name: str = "") -> Any: ...

    assert "read(): uriTemplate: " in refused(lambda: derive_template(read, "x://{name"))
    assert "read(): uri: " in refused(lambda: derive_template(read, "no-scheme"))


def test_a_parameter_that_no_text_can_become_is_refused() -> None:
    def read(name: Callable[[], int]) -> Any: ...

    assert "parameter name: its type has no JSON Schema" in refused(
        lambda: derive_template(read, "x://{name}")
    )


def test_a_variable_of_the_wrong_kind_is_the_callers_error() -> None:
    def read(id: int) -> Any: ...

    with pytest.raises(InvalidParams, match=r"x://\{id\}: id: expected int, got str"):
        derive_template(read, "x://{id}").bind({"id": "seven"})
