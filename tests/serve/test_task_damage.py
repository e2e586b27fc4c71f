"""A task store that cannot be used: calls go on, tasks are refused with a reason, none is lost."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from portico.edge.windows.control import send_command
from tests.serve.task_windows import TaskWindow, TaskWindows, all_gone
from tests.serve.test_windows import SERVER
from tests.support.running import WAIT_S, Piped
from tests.wrap.faults import until, wrap_command

pytestmark = pytest.mark.slow


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[TaskWindows]:
    with all_gone(TaskWindows(tmp_path)) as made:
        yield made


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def overwritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1000 : len(data) - 1000] = bytes(len(data) - 2000)
    path.write_bytes(data)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")


Damage = Callable[[Path], None]
DAMAGES: dict[Damage, str] = {
    emptied: "the file is empty",
    truncated: "restore an intact copy",
    overwritten: "restore an intact copy",
    newer: "update Portico",
}


def plain(window: TaskWindow) -> str:
    """The text of a call that is no task."""
    call = {"name": "effects__plain", "arguments": {}}
    return str(window.answer_to(window.begin("tools/call", **call))["result"]["content"])


def error(window: TaskWindow, id: int) -> str:
    """The message of the error that answers a request."""
    answer: dict[str, Any] = window.answer_to(id)
    assert "error" in answer, answer
    assert answer["error"]["data"]["kind"] == "store"
    return str(answer["error"]["message"])


def check_refused(window: TaskWindow, task: str, words: str) -> None:
    """Calls work, and every request about tasks is refused with the reason."""
    assert "text" in plain(window)
    requests = [
        window.submit("effect", number=2, ms=1),
        window.begin("tasks/get", taskId=task),
        window.begin("tasks/cancel", taskId=task),
    ]
    for id in requests:
        message = error(window, id)
        assert message.startswith("cannot open the task store ")
        assert words in message
    assert "text" in plain(window)


@pytest.mark.parametrize(
    ("damage", "modern"), [*zip(DAMAGES, (False, True, False, True), strict=True)]
)
def test_a_gateway_starts_with_a_store_that_it_cannot_use_and_leaves_it_as_it_is(
    windows: TaskWindows, damage: Damage, modern: bool
) -> None:
    first = windows.open()
    task = first.submitted("effect", number=1, ms=1)
    ended = first.outcome(task)
    first.close_input()
    assert until(lambda: not windows.processes()), "the owner stays"
    store, copy = windows.state / "tasks.db", windows.folder / "copy"
    shutil.copy(store, copy)
    damage(store)
    damaged = store.read_bytes()
    window = windows.open(modern=modern)
    check_refused(window, task, DAMAGES[damage])
    assert store.read_bytes() == damaged
    copies = [path for path in windows.state.glob("tasks.db.damaged-*") if path.stat().st_size]
    assert [path.read_bytes() for path in copies] == (
        [damaged] if damage in (truncated, overwritten) else []
    )
    shutil.copy(copy, store)
    again = windows.open()
    assert again.outcome(task) == ended
    assert "effect 2" in str(again.outcome(again.submitted("effect", number=2, ms=1)))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_that_is_damaged_while_a_gateway_runs_is_refused_until_it_is_restored(
    windows: TaskWindows, damage: Damage
) -> None:
    window = windows.open()
    task = window.submitted("effect", number=1, ms=1)
    ended = window.outcome(task)
    gate = windows.folder / "gate"
    running = window.submitted("gated", gate=str(gate))
    assert until(lambda: windows.count("start")[running]), "no task runs"
    store, aside = windows.state / "tasks.db", windows.folder / "aside"
    other = windows.folder / "other"
    shutil.copy(store, other)
    damage(other)
    store.rename(aside)
    shutil.copy(other, store)
    check_refused(window, task, DAMAGES[damage])
    assert store.read_bytes() == other.read_bytes()
    gate.touch()
    assert until(lambda: windows.count("end")[running]), "the task does not end"
    aside.replace(store)
    assert window.outcome(task) == ended
    assert f"passed {gate}" in str(window.outcome(running)), "a result was lost"
    assert "effect 2" in str(window.outcome(window.submitted("effect", number=2, ms=1)))
    window.close_input()
    assert until(lambda: not windows.processes()), "the owner stays"


@pytest.mark.parametrize("modern", [False, True])
def test_a_store_that_a_newer_portico_migrates_is_refused_from_then_on(
    windows: TaskWindows, modern: bool
) -> None:
    window = windows.open(modern=modern)
    task = window.submitted("effect", number=1, ms=1)
    window.outcome(task)
    with closing(sqlite3.connect(windows.state / "tasks.db")) as database:
        database.execute("PRAGMA user_version = 99")
        before = database.execute("SELECT * FROM tasks").fetchall()
        for id in (
            window.submit("effect", number=2, ms=1),
            window.begin("tasks/cancel", taskId=task),
            window.begin("tasks/get", taskId=task),
        ):
            message = error(window, id)
            assert "it has format 99, of a newer Portico" in message
            assert message.endswith("; end it with `portico stop`")
        assert "text" in plain(window)
        assert database.execute("SELECT * FROM tasks").fetchall() == before
    window.close_input()
    assert until(lambda: not windows.processes()), "the owner stays"


def test_a_damaged_record_of_one_task_stops_no_other_and_is_named_in_the_status(
    windows: TaskWindows,
) -> None:
    window = windows.open()
    good, bad = (window.submitted("effect", number=n, ms=1) for n in (1, 2))
    ended = window.outcome(good)
    window.outcome(bad)
    with closing(sqlite3.connect(windows.state / "tasks.db")) as database, database:
        (record,) = database.execute("SELECT record FROM tasks WHERE id = ?", (bad,)).fetchone()
        flipped = bytes([*record[:50], record[50] ^ 1, *record[51:]])
        database.execute("UPDATE tasks SET record = ? WHERE id = ?", (flipped, bad))
    assert "error" in window.answer_to(window.begin("tasks/get", taskId=bad))
    assert window.outcome(good) == ended
    assert "effect 3" in str(window.outcome(window.submitted("effect", number=3, ms=1)))
    control = str(windows.state / "control")

    def warned() -> bool:
        status = send_command(control, f"{windows.owner()}.sock", "status", WAIT_S) or {}
        return any(f"task {bad} cannot be read" in one for one in status.get("warnings", ()))

    assert until(warned)


def test_a_store_that_is_overwritten_in_place_keeps_no_call_from_working(
    windows: TaskWindows,
) -> None:
    window = windows.open()
    task = window.submitted("effect", number=1, ms=1)
    window.outcome(task)
    for path in windows.state.glob("tasks.db*"):
        if path.is_file():
            path.write_bytes(b"\xff" * path.stat().st_size)
    for _ in range(3):
        assert "text" in plain(window)
        answer = window.answer_to(window.begin("tasks/get", taskId=task))
        words = answer.get("error", {}).get("message", "")
        assert "result" in answer or "task store" in words  # it may be read from memory
    window.close_input()
    assert until(lambda: not windows.processes()), "the owner stays"


# Starts.


def has_sqlite(pid: int) -> bool:
    """True if a process has loaded SQLite."""
    return "_sqlite3" in Path(f"/proc/{pid}/maps").read_text()


def test_a_gateway_opens_no_store_before_its_first_task(windows: TaskWindows) -> None:
    window = windows.open()
    assert "effects__plain" in str(window.answer_to(window.begin("tools/list")))
    assert "text" in plain(window)
    owner = windows.owner()
    assert not has_sqlite(owner)
    assert not has_sqlite(window.process.pid)
    assert [*windows.state.glob("tasks*")] == []
    window.outcome(window.submitted("effect", number=1, ms=1))
    assert has_sqlite(owner)
    assert (windows.state / "tasks.db").stat().st_mode & 0o777 == 0o600


def test_wrap_opens_no_store_before_its_first_task(tmp_path: Path) -> None:
    server = [sys.executable, str(SERVER), str(tmp_path / "starts")]
    with Piped(wrap_command(tmp_path / "home", "--", *server)) as window:
        window.initialize()
        assert "work" in str(window.ask("tools/list"))
        assert "result" in window.ask("tools/call", {"name": "who", "arguments": {}})
        assert not has_sqlite(window.process.pid)
    assert [*(tmp_path / "home").rglob("tasks*")] == []


@pytest.mark.parametrize("module", ["serve.gateway_app", "wrap_app", "app"])
def test_no_application_imports_sqlite(module: str) -> None:
    code = f"import sys, portico.gateway.{module}; print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
