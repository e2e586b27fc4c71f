"""Tasks are tracked until they are over, for a bounded time and up to a bounded number."""

from portico.core.protocol.tasks import Task
from portico.upstream.connections.open_tasks import MAX_OPEN_S, MAX_TASKS, RESULT_S, OpenTasks


def test_a_task_is_open_until_it_is_over_or_its_time_has_passed() -> None:
    now = 0.0
    tasks = OpenTasks(lambda: now)
    tasks.note(Task("short", False, 60))
    now = 59
    tasks.note(Task("short", False, 60))  # the time starts at the creation
    assert tasks
    now = 61
    assert not tasks
    tasks.note(Task("endless", False))
    tasks.note(Task("boundless", False, 1e12))
    tasks.note(Task("endless", True))
    assert tasks
    now += MAX_OPEN_S
    assert not tasks


def test_a_task_that_has_ended_is_still_at_its_server() -> None:
    tasks = OpenTasks(lambda: 0.0)
    tasks.note(Task("a", False, 60))
    tasks.note(Task("a", True))
    assert not tasks
    assert "a" in tasks
    tasks.forget("a")
    assert "a" not in tasks


def test_a_task_is_open_until_its_result_is_fetched_but_not_for_long() -> None:
    now = 0.0
    tasks = OpenTasks(lambda: now)
    for id in ("fetched", "ignored"):
        tasks.note(Task(id, False, 600))
        tasks.note(Task(id, True), is_fetched=False)
    now = RESULT_S - 1
    tasks.note(Task("fetched", True))
    tasks.note(Task("ignored", True), is_fetched=False)  # a client that only polls
    assert tasks
    now = RESULT_S
    assert not tasks
    tasks.note(Task("ignored", True), is_fetched=False)
    assert not tasks


def test_tasks_without_end_are_not_all_kept() -> None:
    tasks = OpenTasks(lambda: 0.0)
    tasks.note(Task("ended", True))
    for number in range(MAX_TASKS + 5):
        tasks.note(Task(str(number), False, 60))
    assert "ended" not in tasks
    assert "4" not in tasks
    assert "5" in tasks
