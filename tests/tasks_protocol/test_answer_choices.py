"""The words of people and models as answers to the choices of a question."""

import json
from typing import Any

import pytest

from portico.core.model.errors import InvalidParams
from portico.library.tasks.mcp.answer_choices import ANSWERS
from portico.library.tasks.mcp.task_answers import question_text, typed_answer

NAMED = {"allow-1": "Allow once", "allow-2": "Always allow", "deny-1": "Reject"}
WORDS = {"yes": "allow-1", "always": "allow-2", "no": "deny-1"}


def permission(words: dict[str, str] = WORDS, named: dict[str, str] = NAMED) -> bytes:
    """A question for a permission, with the agent's own ids and names."""
    option = {"type": "string", "enum": list(named), "enumNames": list(named.values())}
    return form({"option": option}, **{ANSWERS: words})


def form(fields: dict[str, Any], **meta: Any) -> bytes:
    """A question with these fields."""
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    params = {"mode": "form", "message": "Go on?", "requestedSchema": schema, "_meta": meta}
    return json.dumps({"method": "elicitation/create", "params": params}).encode()


def answer(body: bytes, words: Any, *, by_model: bool = False) -> dict[str, Any]:
    """The answer of the protocol."""
    typed = typed_answer(body, words, by_model=by_model)
    assert typed is not None
    found: dict[str, Any] = json.loads(typed)
    return found


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("yes", "allow-1"),
        ("YES", "allow-1"),
        ("always", "allow-2"),
        ("no", "deny-1"),
        ("Allow once", "allow-1"),
        ("always allow", "allow-2"),
        (" reject ", "deny-1"),
        ("deny-1", "deny-1"),
        ("2", "allow-2"),
    ],
)
def test_a_permission_is_answered_by_word_label_id_or_number(words: str, option: str) -> None:
    accepted = {"action": "accept", "content": {"option": option}}
    assert answer(permission(), words) == accepted


def test_a_no_is_a_no_whatever_the_agent_calls_its_options() -> None:
    tricky = {"no": "Yes", "yes": "No", "Reject": "Allow", "always": "no"}
    words = {"yes": "no", "always": "Reject", "no": "yes"}
    for said, option in words.items():
        body = permission(words, tricky)
        assert answer(body, said)["content"] == {"option": option}


def test_a_no_without_a_choice_for_it_declines_the_question() -> None:
    body = permission({"yes": "allow-1"}, {"allow-1": "Allow once"})
    assert answer(body, "no") == {"action": "decline"}
    assert answer(body, "yes")["action"] == "accept"


@pytest.mark.parametrize("words", ["maybe", "always", "4", "Allow", ""])
def test_words_that_mean_no_choice_are_explained(words: str) -> None:
    named = {"a": "Allow", "b": "Allow", "c": "Reject"}
    with pytest.raises(InvalidParams) as raised:
        answer(permission({"yes": "a", "no": "c"}, named), words)
    shown = "answer with one of: yes (Allow) | Allow | no (Reject)"
    assert raised.value.message == f"{words!r} is not one of the choices; {shown}"


def test_the_question_shows_the_words_and_the_labels() -> None:
    shown = "option (yes (Allow once) | always (Always allow) | no (Reject))"
    assert question_text(permission()) == f"Question to a person: Go on?; fields: {shown}"


def test_the_titles_of_any_form_of_choice_are_labels() -> None:
    titled = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]}
    assert answer(form({"size": titled}), "small")["content"] == {"size": "s"}
    assert "size (Small)" in question_text(form({"size": titled}))
    odd = {"type": "string", "enum": ["s", "l"], "enumNames": ["Small"]}
    assert answer(form({"size": odd}), "l")["content"] == {"size": "l"}


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("yes", "accept"),
        ("Yes", "accept"),
        (True, "accept"),
        ("accept", "accept"),
        ("no", "decline"),
        ("NO", "decline"),
        (False, "decline"),
        ("cancel", "cancel"),
    ],
)
def test_a_confirmation_is_a_yes_or_a_no(words: Any, action: str) -> None:
    assert answer(form({}), words)["action"] == action


@pytest.mark.parametrize("words", ["nope", "", "stop", "always", 0])
def test_a_confirmation_is_never_given_by_other_words(words: Any) -> None:
    with pytest.raises(InvalidParams, match="is neither yes nor no"):
        answer(form({}), words)


def test_a_model_answers_a_permission_that_is_for_it_only() -> None:
    assert typed_answer(permission(), "yes", by_model=True) is None
    meta = {"portico/forModel": True, ANSWERS: WORDS}
    option = {"type": "string", "enum": list(NAMED)}
    body = form({"option": option}, **meta)
    assert answer(body, "no", by_model=True)["content"] == {"option": "deny-1"}


@pytest.mark.parametrize("meta", [[], {"yes": 1}, None, "x"])
def test_malformed_words_of_a_server_change_nothing(meta: Any) -> None:
    option = {"type": "string", "enum": ["a", "b"]}
    body = form({"option": option}, **{ANSWERS: meta})
    assert answer(body, "a")["content"] == {"option": "a"}
