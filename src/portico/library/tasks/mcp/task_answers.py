"""Questions of tasks as people and models read them, their answers as the protocol has them, and
calls that wait for a task and pass its questions to the person in front of the client."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from portico.core.model.context import Ask, Context
from portico.core.model.errors import AskError, InvalidParams, McpError, RegistrationError
from portico.core.model.methods import ELICIT, SAMPLE
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import declares, needed_capability
from portico.library.tasks.mcp.answer_choices import choices_of, choices_text, chosen
from portico.library.tasks.mcp.task_changes import task_changes
from portico.library.tasks.mcp.task_host import stored
from portico.library.tasks.store.record import OpenQuestion, TaskRecord

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

FOR_MODEL = "portico/forModel"
"""In a question's `_meta`: true if a model may answer it."""
_LEFT = "left_s"
"""In the state of a call's rounds: the time left to wait after a question."""


class _Question(Struct):
    method: str
    params: dict[str, Any] = {}


def _question(body: bytes) -> _Question:
    """Return the fields of a question; a malformed question has no method."""
    question = decoded(body, _Question)
    return _Question("") if question is None else question


def question_text(body: bytes) -> str:
    """Return a question as text: the addressee, the message, and the possible answers."""
    question = _question(body)
    params = question.params
    if question.method == SAMPLE:
        return f"Question to a model: {_prompt(params)}"
    to = "a model or a person" if is_for_model(params) else "a person"
    if question.method != ELICIT:
        return f"Question to {to}: {question.method or 'it cannot be read'}"
    fields = _fields(params)
    shown = [_field_text(params, name, field) for name, field in fields.items()]
    asked = f"; fields: {', '.join(shown)}" if shown else ""
    return f"Question to {to}: {params.get('message', '')}{asked}"


def question_notes(task: TaskRecord, tool: str) -> list[str]:
    """Return the open questions of a task, and how to answer each; `tool` is that of a model."""
    notes = []
    for question in task.pending:
        by_person = f"A person can answer it with `portico tasks answer {task.id}`."
        by_model = f"Answer it with {tool} and `answer`."
        how = by_person if is_for_person(question.body) else by_model
        notes += [question_text(question.body), how]
    return notes


def is_for_model(params: Mapping[str, Any]) -> bool:
    """True if a model may answer a question."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and meta.get(FOR_MODEL) is True


def is_for_person(body: bytes) -> bool:
    """True if only a person may answer a question."""
    question = _question(body)
    return question.method == ELICIT and not is_for_model(question.params)


def typed_answer(body: bytes, answer: Any, *, by_model: bool) -> bytes | None:
    """Return an answer in the form that the question's protocol requires; None if the question is
    not for a model. Raises InvalidParams for words that mean none of its choices."""
    question = _question(body)
    if question.method == SAMPLE:
        if isinstance(answer, dict) and "content" in answer:
            return encode({"role": "assistant", "model": "unknown", **answer})
        words = answer if isinstance(answer, str) else encode(answer).decode()
        content = {"type": "text", "text": words}
        return encode({"role": "assistant", "content": content, "model": "unknown"})
    if by_model and not is_for_model(question.params):
        return None
    if question.method != ELICIT:
        return encode(answer)
    if isinstance(answer, dict) and answer.get("action") in ("accept", "decline", "cancel"):
        return encode(answer)
    if answer in ("decline", "cancel"):
        return encode({"action": answer})
    fields = _fields(question.params)
    if _is_refusal(question.params, fields, answer):
        return encode({"action": "decline"})
    return encode({"action": "accept", "content": _content(question.params, fields, answer)})


def _is_refusal(params: Mapping[str, Any], fields: Mapping[str, Any], answer: Any) -> bool:
    """True for a no to a form without fields, which is a confirmation, or to a permission that
    offers no choice for it."""
    if answer is False or (isinstance(answer, str) and answer.casefold() in ("no", "false")):
        choices = [one for field in fields.values() for one in choices_of(params, field)]
        is_permission = any(one.word for one in choices)
        return not fields or (is_permission and not any(one.word == "no" for one in choices))
    return False


def _content(params: Mapping[str, Any], fields: Mapping[str, Any], answer: Any) -> Any:
    """Return the content of a form; a single value is that of its only field. Several are an
    object, or its JSON."""
    if isinstance(answer, dict):
        return answer
    if not fields:
        if answer is True or str(answer).casefold() in ("yes", "true", "accept"):
            return {}
        raise InvalidParams(f"{answer!r} is neither yes nor no; answer one of them")
    if len(fields) > 1:
        whole = decoded(answer.encode(), dict[str, Any]) if isinstance(answer, str) else None
        return answer if whole is None else whole
    ((name, schema),) = fields.items()
    choices = choices_of(params, schema)
    if not choices or not isinstance(answer, str) or schema.get("type") == "array":
        return {name: _converted(schema, answer)}
    value = chosen(answer, choices)
    if value is None:
        how = f"answer with one of: {choices_text(choices)}"
        raise InvalidParams(f"{answer!r} is not one of the choices; {how}")
    return {name: value}


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


def _field_text(params: Mapping[str, Any], name: str, schema: Any) -> str:
    kind = schema.get("type", "") if isinstance(schema, dict) else ""
    shown = choices_text(choices_of(params, schema)) or kind
    return f"{name} ({shown})" if shown else name


def _prompt(params: Mapping[str, Any]) -> str:
    messages = params.get("messages")
    texts = [
        str(content.get("text", ""))
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, dict) and isinstance(content := message.get("content"), dict)
    ]
    return " ".join(texts)


# While a call waits.


async def settled_task(
    store: "TaskStore",
    task: TaskRecord,
    context: Context,
    within_s: float,
    *,
    changed: Callable[[TaskRecord], Awaitable[None]] | None = None,
    or_question: bool = True,
    is_new: bool = False,
) -> TaskRecord:
    """Wait for the end of a task, or for a question that its client cannot pass to a person; return
    the task as it is then, or after this time.

    A client that can ask its person does so; until the question is closed, no time passes. Without
    `or_question`, a question that only a person may answer does not end the wait. `changed` is
    awaited with each state. A task that `is_new` was stored just now, by the caller.
    """
    clock = asyncio.get_running_loop().time
    left_s = max(context.state.pop(_LEFT, within_s), 0.0)
    asked: set[str] = set()
    latest = task
    new = task if is_new else None
    async with task_changes(store, task.principal, task.id, new) as changes:
        found = await anext(changes, None)
        while found is not None:
            latest = found
            while (question := _unasked(latest, asked)) is not None:
                if not is_for_person(question.body):
                    return latest
                asked.add(question.key)  # later states may have the question, too
                context.state[_LEFT] = left_s
                if not await _ask_person(store, latest, question, context) and or_question:
                    return latest
                latest = await _current(store, latest)
            if latest.is_finished:
                return latest
            began = clock()
            try:
                async with asyncio.timeout(left_s):
                    if changed is not None:
                        await changed(latest)
                    found = await anext(changes, None)
            except TimeoutError:
                break
            left_s = max(left_s - (clock() - began), 0.0)
    return await _current(store, latest)


async def _current(store: "TaskStore", task: TaskRecord) -> TaskRecord:
    found = await stored(store.get(task.principal, task.id))
    return task if found is None else found


def _unasked(task: TaskRecord, asked: set[str]) -> OpenQuestion | None:
    if task.is_cancel_requested:
        return None
    return next((one for one in task.pending if one.key not in asked), None)


async def _ask_person(
    store: "TaskStore", task: TaskRecord, question: OpenQuestion, context: Context
) -> bool:
    """Ask the person in front of the client until the question is closed; False if the client
    cannot ask, or does not answer."""
    asked = _question(question.body)
    capability, mode = needed_capability(asked.method, asked.params)
    if not declares(context.client_capabilities, capability, mode):
        return False
    params = {key: value for key, value in asked.params.items() if key not in ("mode", "task")}
    if mode != "form":  # which is the default, and unknown to older clients
        params["mode"] = mode
    ask = Ask(asked.method, params, capability, mode)
    asking = asyncio.ensure_future(context.ask({question.key: ask}))
    closing = asyncio.ensure_future(until_closed(store, task, question))
    try:
        await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            await stored(closing)
            return True
        answer = encode(asking.result()[question.key])
    except (AskError, McpError, RegistrationError):  # the form of a server may not be valid
        return False
    finally:
        asking.cancel()
        closing.cancel()
        await asyncio.wait({asking, closing})  # a dialog is withdrawn before the call ends
    await stored(store.answer(task.principal, task.id, {question.key: answer}))
    return True


async def until_closed(store: "TaskStore", task: TaskRecord, question: OpenQuestion) -> TaskRecord:
    """Wait until a question needs no answer any more, since another answered it, it expired or its
    task ended; return the task as it is then."""
    latest = task
    async with task_changes(store, task.principal, task.id) as changes:
        async for latest in changes:
            if all(one.key != question.key for one in latest.pending):
                break
    return latest
