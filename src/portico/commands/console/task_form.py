"""The questions of tasks as forms at the terminal, as long as they are open."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from portico.commands.console.form import Form, InputClosed, can_ask, discard_typed, read_line
from portico.commands.console.render import Screen, Ticker
from portico.commands.console.task_views import short, tool_of
from portico.core.model.errors import PorticoError
from portico.core.model.methods import ELICIT, SAMPLE
from portico.library.tasks.mcp.task_answers import question_text, typed_answer, until_closed
from portico.library.tasks.store.record import OpenQuestion, TaskRecord

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore


class QuestionClosed(PorticoError):
    """A question was closed before its answer was stored."""

    def __init__(self, task: TaskRecord) -> None:
        super().__init__(
            f"{short(task)}: the question is closed: "
            "it was answered elsewhere, it expired, or its task ended; "
            f"`portico tasks show {short(task)}` shows which"
        )


async def answer_at_terminal(store: "TaskStore", task: TaskRecord, question: OpenQuestion) -> bool:
    """Ask a question at the terminal, and store its answer; False if the user closed the form,
    which leaves the question open. Raises QuestionClosed."""
    given = await asked_at_terminal(store, task, question)
    typed = None if given is None else typed_answer(question.body, given, by_model=False)
    if typed is None:
        return False
    answered = await store.answer(task.principal, task.id, {question.key: typed})
    if answered is None or not has_answer(answered, question.key, typed):
        raise QuestionClosed(task)
    return True


async def asked_at_terminal(store: "TaskStore", task: TaskRecord, question: OpenQuestion) -> Any:
    """Ask at the terminal until the question is closed elsewhere, which raises QuestionClosed."""
    asker = await tool_of(store, task) or short(task)
    asking = asyncio.ensure_future(_asked(question, asker))
    closing = asyncio.ensure_future(until_closed(store, task, question))
    try:
        await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_answered = asking.done()
        for racing in (asking, closing):
            racing.cancel()
        await asyncio.wait({asking, closing})  # the terminal is free then
    if is_answered:
        return asking.result()
    closing.result()
    discard_typed()
    Screen(sys.stderr).print("")  # below the prompt
    raise QuestionClosed(task)


async def _asked(question: OpenQuestion, asker: str) -> Any:
    """Ask at the terminal; return None if the user closed the form without an answer."""
    err = Screen(sys.stderr)
    if not can_ask(err):
        raise PorticoError(
            f"{question_text(question.body)}\n  give an ANSWER or --form JSON; "
            "there is no terminal to ask at"
        )
    asked = msgspec.json.decode(question.body)
    if asked["method"] == ELICIT:
        answered = await Form(err, asker, Ticker(err)).answer(asked.get("params") or {})
        return None if answered["action"] == "cancel" else answered
    err.print(question_text(question.body), "bold")
    if asked["method"] != SAMPLE:
        raise PorticoError("give the answer with --form JSON")
    try:
        return await read_line(err, "  > ") or None
    except InputClosed:
        return None


def has_answer(task: TaskRecord, key: str, answer: bytes) -> bool:
    """True if a question of a task has exactly this answer."""
    return any(one.key == key and one.answer == answer for one in task.questions)
