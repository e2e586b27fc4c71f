"""The choices of a form's field, and the choice that a person's or a model's words mean."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ANSWERS = "portico/answers"
"""In a question's `_meta`: the choices that the words `yes`, `always` and `no` mean."""


class Choice(NamedTuple):
    """One value that a field may have."""

    value: str
    label: str
    word: str = ""
    """The word that means it whatever its label is."""


def choices_of(params: Mapping[str, Any], field: Any) -> list[Choice]:
    """Return the choices of one field of a form, in any of the forms that the spec allows."""
    if not isinstance(field, dict):
        return []
    words = {value: word for word, value in _words(params).items()}
    return [Choice(value, label, words.get(value, "")) for value, label in _labelled(field)]


def _labelled(field: Mapping[str, Any]) -> list[tuple[str, str]]:
    items = field.get("items")
    source = items if field.get("type") == "array" and isinstance(items, dict) else field
    titled = source.get("oneOf") or source.get("anyOf")
    if isinstance(titled, list):
        return [(str(t.get("const")), str(t.get("title"))) for t in titled if isinstance(t, dict)]
    values, names = source.get("enum"), source.get("enumNames")
    if not isinstance(values, list):
        return []
    named = names if isinstance(names, list) and len(names) == len(values) else values
    return [(str(value), str(name)) for value, name in zip(values, named, strict=True)]


def _words(params: Mapping[str, Any]) -> dict[str, str]:
    meta = params.get("_meta")
    found = meta.get(ANSWERS) if isinstance(meta, dict) else None
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def chosen(text: str, choices: Sequence[Choice]) -> str | None:
    """Return the value that is meant by a word, a label, a value or a number, in this order; None
    if there is none, or if two choices have the label."""
    given = text.strip()
    folded = given.casefold()
    ways = (
        [one.value for one in choices if one.word and one.word == folded],
        [one.value for one in choices if one.label.casefold() == folded],
        [one.value for one in choices if one.value == given],
        [one.value for number, one in enumerate(choices, 1) if str(number) == given],
    )
    found = next(filter(None, ways), [])
    return found[0] if len(found) == 1 else None


def choices_text(choices: Sequence[Choice]) -> str:
    """Return the choices for people: the word with its label, or the label alone."""
    return " | ".join(f"{c.word} ({c.label})" if c.word else c.label for c in choices)
