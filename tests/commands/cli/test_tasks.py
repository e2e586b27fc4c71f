"""`portico tasks` on real stores, and beside a real gateway that shares one."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from portico.commands.cli.main import main
from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import COMPLETED, FAILED, INTERRUPTED, Lease, TaskRecord
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.commands.cli.test_call_terminal import at_terminal
from tests.commands.cli.test_completion import suggested
from tests.gateway.observed import Gateway, portico
from tests.support.task_stores import running
from tests.wrap.standing import until

T = TypeVar("T")
CALL = b'{"name":"tea__brew","params":{"arguments":{"cups":2}}}'
KIND = "call@some-scope-"
FORM = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["small", "large"]},
        "cups": {"type": "integer"},
    },
    "required": ["size"],
}
ONE = {"type": "object", "properties": {"hot": {"type": "boolean"}}, "required": ["hot"]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return tmp_path


def stored(home: Path, work: Callable[[TaskStore], Awaitable[T]]) -> T:
    """Do something with the store, as another process does."""

    async def opened() -> T:
        store = tasks_in_folder(str(home / "home" / "state"))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(opened())


async def begun(store: TaskStore) -> tuple[TaskRecord, Lease]:
    await store.submit(LOCAL, KIND, CALL)
    return await running(store, KIND)


async def finished(
    store: TaskStore, state: Any = COMPLETED, payload: Any = None, message: str = ""
) -> TaskRecord:
    """A task that has ended with this result or error."""
    _, lease = await begun(store)
    await store.progress(lease, "boiling\nwater")
    body = None if payload is None else json.dumps(payload).encode()
    failed = payload is not None and payload.get("result", {}).get("isError", False)
    done = await store.finish(lease, state, body, message, is_error=failed)
    assert done is not None
    return done


async def asking(store: TaskStore, *questions: dict[str, Any]) -> TaskRecord:
    """A task that waits for answers."""
    _, lease = await begun(store)
    task = await store.ask(lease, [json.dumps(question).encode() for question in questions])
    assert task is not None
    return task


def elicit(form: dict[str, Any], message: str = "Which size?") -> dict[str, Any]:
    params = {"mode": "form", "message": message, "requestedSchema": form}
    return {"method": "elicitation/create", "params": params}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": words}], **more}}


def answers(home: Path, task: TaskRecord) -> list[Any]:
    """The answers that the worker of a task gets."""

    async def take(store: TaskStore) -> list[Any]:
        assert task.lease is not None
        taken = await store.take_answers(task.lease) or {}
        return [json.loads(answer) for answer in taken.values()]

    return stored(home, take)


def test_without_a_store_there_are_no_tasks_and_none_is_created(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [main(["tasks", "list"]), main(["tasks", "prune"])] == [0, 0]
    assert [main(["tasks", "cancel", "--all"]), main(["tasks", "list", "--json"])] == [0, 0]
    assert capsys.readouterr().out == ("no tasks\nremoved 0 tasks\nno task is in progress\n[]\n")
    assert main(["tasks", "show", "ptk_x"]) == 1
    assert "there is no task 'ptk_x'; `portico tasks list` shows" in capsys.readouterr().err
    assert not (home / "home").exists()


def test_tasks_are_listed_newest_first_with_what_can_be_done(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = stored(home, lambda store: finished(store, COMPLETED, text("tea")))
    lost = stored(home, lambda store: finished(store, INTERRUPTED, None, "interrupted: why"))
    waits = stored(home, lambda store: asking(store, elicit(FORM)))
    assert main(["tasks", "list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "age", "state", "kind", "tool", "message"]
    assert [row.split()[0] for row in rows[:3]] == [one.id[:12] for one in (waits, lost, done)]
    assert rows[0].split("  ")[-1].startswith("Question to a person: Which size?")
    assert rows[1].split()[3:6] == ["interrupted", "call", "tea__brew"]
    assert rows[3:] == [
        f"1 task waits for an answer: `portico tasks answer {waits.id[:12]}`",
        f"1 task was interrupted; start one again with `portico tasks resume {lost.id[:12]}`",
    ]


def test_a_list_can_be_limited_to_a_state_and_a_number(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for state in (COMPLETED, FAILED, COMPLETED):
        stored(home, lambda store, state=state: finished(store, state))  # type: ignore[misc]
    assert main(["tasks", "list", "--state", "completed", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert (shown.count("ptk_"), "there are more; show them with --limit N" in shown) == (1, True)
    assert main(["tasks", "list", "--state", "failed", "--json"]) == 0
    (task,) = json.loads(capsys.readouterr().out)
    assert (task["state"], task["tool"], task["kind"]) == ("failed", "tea__brew", "call")
    assert main(["tasks", "list", "--state", "queued"]) == 0
    assert capsys.readouterr().out == "no tasks are queued\n"


def test_everything_about_a_task_is_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = stored(home, lambda store: finished(store, COMPLETED, text("hot tea")))
    assert main(["tasks", "show", task.id]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"task {task.id}\n  state      completed\n  kind       call\n")
    for line in ('arguments  {"cups":2}', "tool       tea__brew", "boiling water", "hot tea\n"):
        assert line in shown
    assert main(["tasks", "show", task.id, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["result"]["content"][0]["text"] == "hot tea"
    assert [event["text"] for event in data["events"]] == ["boiling\nwater"]
    assert data["arguments"] == {"cups": 2}


def test_the_error_of_a_task_is_shown_with_how_to_start_it_again(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = {"error": {"code": -32603, "message": "the kettle broke"}}
    task = stored(home, lambda store: finished(store, FAILED, error, "the kettle broke"))
    assert main(["tasks", "show", task.id]) == 0
    shown = capsys.readouterr().out
    assert "Error\n  the kettle broke\n" in shown
    assert f"start it again with `portico tasks resume {task.id[:12]}`" in shown


def test_the_beginning_of_an_id_is_enough_if_it_is_unique(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = stored(home, finished)
    assert [main(["tasks", "show", one.id[:8]]), main(["tasks", "show", one.id[4:12]])] == [0, 0]
    assert capsys.readouterr().out.count(f"task {one.id}\n") == 2
    other = stored(home, finished)
    assert main(["tasks", "show", "ptk_"]) == 1
    err = capsys.readouterr().err
    assert f"'ptk_' matches several tasks; give more characters: {other.id}, {one.id}" in err


@pytest.mark.parametrize(
    ("state", "payload", "code", "out", "err"),
    [
        (COMPLETED, text("hot tea"), 0, "hot tea\n", ""),
        (COMPLETED, text("no water", isError=True), 1, "", "no water\n"),
        (FAILED, {"error": {"code": 1, "message": "broke"}}, 1, "", "is failed: broke\n"),
        (INTERRUPTED, None, 1, "", "is interrupted: why\n"),
    ],
)
def test_waiting_prints_the_result_and_returns_whether_it_completed(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    state: Any,
    payload: Any,
    code: int,
    out: str,
    err: str,
) -> None:
    task = stored(home, lambda store: finished(store, state, payload, "why"))
    assert main(["tasks", "wait", task.id]) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err[len(printed.err) - len(err) :]) == (out, err)


def test_waiting_ends_with_its_timeout_and_shows_the_question(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = stored(home, lambda store: asking(store, elicit(ONE, "Is it hot?")))
    assert main(["tasks", "wait", task.id, "--timeout", "0.3"]) == 1
    err = capsys.readouterr().err
    assert err.count("Question to a person: Is it hot?; fields: hot (boolean)\n") == 1
    assert f"{task.id[:12]} is still input_required after 0.3 s" in err


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (["yes"], {"action": "accept", "content": {"hot": True}}),
        (["decline"], {"action": "decline"}),
        (["cancel"], {"action": "cancel"}),
        (["--form", '{"hot": false}'], {"action": "accept", "content": {"hot": False}}),
        (["--form", '{"action": "decline"}'], {"action": "decline"}),
    ],
)
def test_a_question_is_answered_on_the_command_line(
    home: Path, capsys: pytest.CaptureFixture[str], given: list[str], answer: dict[str, Any]
) -> None:
    task = stored(home, lambda store: asking(store, elicit(ONE)))
    assert main(["tasks", "answer", task.id, *given]) == 0
    assert capsys.readouterr().out == f"answered {task.id[:12]}\n"
    assert answers(home, task) == [answer]


def test_one_of_several_questions_is_chosen_by_number_or_key(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = {"method": "sampling/createMessage", "params": {"messages": []}}
    task = stored(home, lambda store: asking(store, elicit(ONE), elicit({}, "Sure?"), sample))
    assert main(["tasks", "answer", task.id, "no", "--question", "2"]) == 0
    key = task.questions[2].key
    assert main(["tasks", "answer", task.id, "a", "haiku", f"--question={key}"]) == 0
    assert "; 2 questions left\n" in capsys.readouterr().out
    first, second = answers(home, task)
    assert first == {"action": "decline"}
    assert second["content"] == {"type": "text", "text": "a haiku"}
    assert main(["tasks", "answer", task.id, "x", "--question", "7"]) == 1
    assert "has no open question '7'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["maybe"], "the answer does not match the form"),
        (["--form", "{hot"], "--form is not JSON"),
        ([], "give an ANSWER or --form JSON; there is no terminal to ask at"),
    ],
)
def test_a_wrong_answer_is_explained_and_not_stored(
    home: Path, capsys: pytest.CaptureFixture[str], given: list[str], why: str
) -> None:
    task = stored(home, lambda store: asking(store, elicit(ONE)))
    assert main(["tasks", "answer", task.id, *given]) == 1
    assert why in capsys.readouterr().err
    assert answers(home, task) == []


def test_a_question_that_is_withdrawn_closes_its_form(home: Path) -> None:
    task = stored(home, lambda store: asking(store, elicit(FORM)))
    with at_terminal("tasks", "answer", task.id) as terminal:
        terminal.until("1. small")
        terminal.until("> ")
        lease, keys = task.lease, [one.key for one in task.questions]
        assert lease is not None
        stored(home, lambda store: store.withdraw(lease, keys))
        terminal.until(f"{task.id[:12]}: the question is closed: it was answered elsewhere")
        assert terminal.end() == 1


def test_a_task_without_questions_cannot_be_answered(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = stored(home, finished)
    assert main(["tasks", "answer", task.id, "yes"]) == 1
    assert f"{task.id[:12]} is completed: it has no open question" in capsys.readouterr().err


def test_a_person_fills_in_the_form_of_a_task(home: Path) -> None:
    task = stored(home, lambda store: asking(store, elicit(FORM)))
    with at_terminal("tasks", "answer", task.id) as terminal:
        terminal.until("tea__brew requests input: Which size?")
        terminal.answer("2. large", "2")
        terminal.answer("cups (integer, optional)\n  > ", "many")
        terminal.answer("enter a whole number", "3")
        terminal.answer("Send this?", "what?")
        terminal.answer("Send this?", "")  # sends it, and does not begin anew
        assert terminal.end() == 0
    assert answers(home, task) == [{"action": "accept", "content": {"size": "large", "cups": 3}}]


def test_a_form_with_one_choice_asks_once(home: Path) -> None:
    task = stored(home, lambda store: asking(store, elicit(ONE)))
    with at_terminal("tasks", "answer", task.id) as terminal:
        terminal.answer("hot (boolean)\n  > ", "")
        terminal.until("enter yes or no")
        terminal.answer("> ", "no")
        assert terminal.end() == 0
    assert "Send this?" not in terminal.screen
    assert answers(home, task) == [{"action": "accept", "content": {"hot": False}}]


def test_a_confirmation_is_not_given_by_enter(home: Path) -> None:
    task = stored(home, lambda store: asking(store, elicit({}, "Delete it?")))
    with at_terminal("tasks", "answer", task.id) as terminal:
        terminal.until("Delete it?")
        terminal.answer("Accept? [y]es, [n]o: ", "")
        terminal.until("Accept?")
        assert "Delete it?" not in terminal.screen  # it does not begin anew
        terminal.answer(" [y]es, [n]o: ", "n")
        assert terminal.end() == 0
    assert answers(home, task) == [{"action": "decline"}]


def test_a_person_who_closes_the_form_leaves_the_question_open(home: Path) -> None:
    task = stored(home, lambda store: asking(store, elicit(FORM)))
    with at_terminal("tasks", "answer", task.id) as terminal:
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.end() == 1
    assert "nothing was sent; the question is still open" in terminal.screen
    assert answers(home, task) == []


def test_queued_tasks_are_cancelled_at_once_and_finished_ones_stay(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = stored(home, finished)
    queued = stored(home, lambda store: store.submit(LOCAL, KIND, CALL))
    assert main(["tasks", "cancel", queued.id, done.id]) == 1
    shown = capsys.readouterr().out
    assert shown == f"cancelled {queued.id[:12]}\n{done.id[:12]} is completed already\n"
    stored(home, lambda store: store.submit(LOCAL, KIND, CALL))
    assert main(["tasks", "cancel", "--all", "--json"]) == 0
    assert [task["state"] for task in json.loads(capsys.readouterr().out)] == ["cancelled"]


def test_the_work_of_a_process_that_was_killed_is_interrupted_and_resumed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def leave(store: TaskStore) -> TaskRecord:
        await store.submit(LOCAL, KIND, CALL)
        task = await store.claim("gone", [KIND], 0.01)
        assert task is not None
        assert task.lease is not None
        await store.begin(task.lease)
        return task

    old = stored(home, leave)
    assert main(["tasks", "wait", old.id]) == 1
    assert "interrupted: the process that ran the task ended" in capsys.readouterr().err
    assert [main(["tasks", "resume", old.id]), main(["tasks", "resume", old.id])] == [0, 0]
    first, second = (printed := capsys.readouterr()).out.splitlines()
    assert first.endswith(f" resumes {old.id[:12]}")
    assert second.startswith(f"{old.id[:12]} was resumed before, by {first.split()[0]}, which is")
    assert "no gateway of its config is running: it waits for the next" in printed.err
    assert main(["tasks", "list"]) == 0
    assert "interrupted; start" not in capsys.readouterr().out
    assert main(["tasks", "show", old.id]) == 0
    assert f"resumed    by {first.split()[0]}" in capsys.readouterr().out


def test_a_completed_task_is_not_resumed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = stored(home, finished)
    assert main(["tasks", "resume", task.id]) == 1
    assert f"cannot resume {task.id[:12]}: the task is completed" in capsys.readouterr().err


def test_a_task_whose_tool_failed_is_failed_and_can_be_resumed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = stored(home, lambda store: finished(store, COMPLETED, text("no tea", isError=True)))
    assert main(["tasks", "list", "--state", "failed"]) == 0
    assert task.id[:12] in capsys.readouterr().out
    assert main(["tasks", "list", "--state", "completed"]) == 0
    assert capsys.readouterr().out == "no tasks are completed\n"
    assert main(["tasks", "show", task.id]) == 0
    assert f"start it again with `portico tasks resume {task.id[:12]}`" in capsys.readouterr().out
    assert main(["tasks", "resume", task.id]) == 0
    assert capsys.readouterr().out.endswith(f" resumes {task.id[:12]}\n")


def test_finished_tasks_are_removed_after_a_confirmation_only(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(home, finished)
    queued = stored(home, lambda store: store.submit(LOCAL, KIND, CALL))
    assert main(["tasks", "prune"]) == 0
    assert capsys.readouterr().out == "removed 0 tasks\n"
    assert main(["tasks", "prune", "--finished"]) == 1
    assert "1 task would be removed with their results: confirm it with --yes" in (
        capsys.readouterr().err
    )
    with at_terminal("tasks", "prune", "--finished") as terminal:
        terminal.answer("Remove 1 finished task with their results? [y/N] ", "")
        assert terminal.end() == 1
    assert main(["tasks", "prune", "--finished", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 1, "kept": []}
    assert main(["tasks", "list", "--json"]) == 0
    assert [task["id"] for task in json.loads(capsys.readouterr().out)] == [queued.id]


def test_a_store_of_a_newer_format_is_refused_in_its_own_words(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(home, finished)
    with closing(sqlite3.connect(home / "home" / "state" / "tasks.db")) as database:
        database.execute("PRAGMA user_version = 999")
    assert main(["tasks", "list"]) == 1
    assert "newer" in capsys.readouterr().err


def test_a_damaged_record_is_named_and_removed_after_a_confirmation_only(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = (stored(home, finished) for _ in range(2))
    with closing(sqlite3.connect(home / "home" / "state" / "tasks.db")) as db, db:
        db.execute("UPDATE tasks SET record = zeroblob(100) WHERE id = ?", (bad.id,))
    for _ in range(2):
        assert main(["tasks", "list"]) == 0
        out, err = capsys.readouterr()
        assert good.id[:12] in out
        assert bad.id[:12] not in out
        assert f"portico: 1 task cannot be read: {bad.id}; remove damaged records with" in err
    assert main(["tasks", "prune", "--damaged"]) == 1
    assert "1 task would be removed with their results: confirm it" in capsys.readouterr().err
    assert main(["tasks", "prune", "--finished", "--damaged"]) == 2
    capsys.readouterr()
    assert main(["tasks", "prune", "--damaged", "--yes"]) == 0
    assert capsys.readouterr().out == "removed 1 task\n"
    assert main(["tasks", "list", "--json"]) == 0
    out, err = capsys.readouterr()
    assert ([task["id"] for task in json.loads(out)], err) == ([good.id], "")


def test_a_damaged_store_is_refused_in_its_own_words(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(home, finished)
    os.truncate(home / "home" / "state" / "tasks.db", 100)
    assert main(["tasks", "list"]) == 1
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "give an action: list, show"),
        (["shw", "x"], "cannot be 'shw'; did you mean show?"),
        (["show"], "show needs the ID of a task"),
        (["show", "a", "b"], "show takes one ID"),
        (["list", "a"], "list takes no ID"),
        (["cancel", "--all", "a"], "either --all or IDs"),
        (["show", "a", "--state", "queued"], "--state works only with list"),
        (["wait", "a", "--timeout", "0"], "'0' is not a number of seconds"),
        (["answer", "a", "b", "--form", "{}"], "either an ANSWER or --form"),
        (["prune", "--yes"], "--yes works only with --finished"),
    ],
)
def test_wrong_usage_is_explained(
    capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert main(["tasks", *words]) == 2
    assert why in capsys.readouterr().err


def test_a_shell_completes_the_ids_that_an_action_applies_to(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = stored(home, finished)
    lost = stored(home, lambda store: finished(store, INTERRUPTED))
    waits = stored(home, lambda store: asking(store, elicit(FORM)))
    assert suggested(capsys, "tasks", "an") == ["answer"]
    assert suggested(capsys, "tasks", "answer", "") == [waits.id]
    assert suggested(capsys, "tasks", "resume", "ptk_") == [lost.id]
    assert suggested(capsys, "tasks", "show", "") == [waits.id, lost.id, done.id]
    assert suggested(capsys, "tasks", "show", done.id, "") == []
    assert suggested(capsys, "tasks", "cancel", waits.id, "") == [waits.id]
    assert suggested(capsys, "tasks", "list", "--state", "q") == ["queued"]


SLOW = '''
import asyncio

from portico import Context, Server

server = Server("slow")


@server.tool
async def nap() -> str:
    """Sleep until cancelled."""
    await asyncio.Event().wait()
    return ""


@server.tool
async def order(context: Context) -> str:
    """Take a while, then ask."""
    await asyncio.sleep(0.2)
    answer = await context.elicit("Is it hot?", HOT)
    return f"hot: {answer.content['hot']}"


HOT = {"type": "object", "properties": {"hot": {"type": "boolean"}}, "required": ["hot"]}
'''


@pytest.mark.slow
def test_a_running_gateway_acts_on_every_change(home: Path) -> None:
    (home / "slow.py").write_text(SLOW)
    (home / "portico.toml").write_text(
        '[gateway]\nexpose = "all"\nsync_budget_s = 0.1\n[tasks]\nlease_s = 2\n'
        '[components.slow]\npath = "slow.py"\n'
    )

    def tasks(*words: str) -> Any:
        ran = portico(home, "tasks", *words, "--json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    with Gateway(home, "--http", "0") as gateway:
        until(lambda: gateway.call("slow__nap").returncode == 0, "the tool is not listed")
        (nap,) = tasks("list")
        assert (nap["state"], nap["tool"]) == ("running", "slow__nap")
        assert "1 task running" in portico(home, "status").stdout
        (cancelled,) = tasks("cancel", nap["id"])
        assert cancelled["state"] == "cancelled"
        resumed = tasks("resume", nap["id"])
        assert (resumed["resumes"], resumed["process"]) == (nap["id"], gateway.process.pid)
        until(lambda: tasks("show", resumed["id"])["state"] == "running", "it is not taken")
        (ended,) = tasks("cancel", "--all")
        assert (ended["id"], ended["state"]) == (resumed["id"], "cancelled")
        assert gateway.call("slow__order").returncode == 0
        until(lambda: tasks("list", "--state", "input_required"), "it does not ask")
        (order,) = tasks("list", "--state", "input_required")
        tasks("answer", order["id"], "yes")
        waited = portico(home, "tasks", "wait", order["id"])
        assert (waited.returncode, waited.stdout) == (0, "hot: True\n"), waited.stderr
