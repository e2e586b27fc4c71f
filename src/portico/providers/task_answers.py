"""Questions of tasks as people and models read them, and their answers as the protocol has them."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from portico.model.methods import ELICIT, SAMPLE
from portico.protocol.codec import encode

FOR_MODEL = "portico/forModel"
"""In a question's `_meta`: true if a model may answer it."""


class _Question(Struct):
    method: str
    params: dict[str, Any] = {}


def question_text(body: bytes) -> str:
    """Return a question as text: the addressee, the message, and the possible answers."""
    question = msgspec.json.decode(body, type=_Question)
    params = question.params
    if question.method == SAMPLE:
        return f"Question to a model: {_prompt(params)}"
    to = "a model or a person" if is_for_model(params) else "a person"
    if question.method != ELICIT:
        return f"Question to {to}: {question.method}"
    fields = _fields(params)
    asked = f"; fields: {', '.join(map(_field_text, fields, fields.values()))}" if fields else ""
    return f"Question to {to}: {params.get('message', '')}{asked}"


def is_for_model(params: Mapping[str, Any]) -> bool:
    """True if a model may answer a question."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and meta.get(FOR_MODEL) is True


def typed_answer(body: bytes, answer: Any, *, by_model: bool) -> bytes | None:
    """Return an answer in the form that the question's protocol requires; None if the question is
    not for a model."""
    question = msgspec.json.decode(body, type=_Question)
    if question.method == SAMPLE:
        content = {"type": "text", "text": answer if isinstance(answer, str) else str(answer)}
        return encode({"role": "assistant", "content": content, "model": "unknown"})
    if by_model and not is_for_model(question.params):
        return None
    if question.method != ELICIT:
        return encode(answer)
    if isinstance(answer, dict) and answer.get("action") in ("accept", "decline", "cancel"):
        return encode(answer)
    if answer in ("decline", "cancel"):
        return encode({"action": answer})
    if not _fields(question.params) and answer in ("no", "No", False):
        return encode({"action": "decline"})  # a form without fields is a confirmation
    return encode({"action": "accept", "content": _content(question.params, answer)})


def _content(params: Mapping[str, Any], answer: Any) -> Any:
    """Return the content of a form; a single value is that of its only field."""
    if isinstance(answer, dict):
        return answer
    fields = _fields(params)
    if len(fields) != 1:
        return {} if not fields else answer
    (name, schema), *_ = fields.items()
    return {name: _converted(schema, answer)}


def _converted(schema: Any, answer: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(answer, str) or kind not in ("boolean", "number", "integer"):
        return answer
    if kind == "boolean" and answer.lower() in ("yes", "true", "no", "false"):
        return answer.lower() in ("yes", "true")
    try:
        return msgspec.json.decode(answer)
    except msgspec.DecodeError:
        return answer


def _fields(params: Mapping[str, Any]) -> dict[str, Any]:
    schema = params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return fields if isinstance(fields, dict) else {}


def _field_text(name: str, schema: Any) -> str:
    choices = schema.get("enum") if isinstance(schema, dict) else None
    kind = schema.get("type", "") if isinstance(schema, dict) else ""
    shown = " | ".join(map(str, choices)) if isinstance(choices, list) else kind
    return f"{name} ({shown})" if shown else name


def _prompt(params: Mapping[str, Any]) -> str:
    messages = params.get("messages")
    texts = [
        str(content.get("text", ""))
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, dict) and isinstance(content := message.get("content"), dict)
    ]
    return " ".join(texts)
