"""Open tasks are followed until they are over, for a bounded time and up to a bounded number."""

from portico.protocol.tasks import Task
from portico.upstream.open_tasks import MAX_OPEN_S, MAX_TASKS, OpenTasks


def test_a_task_is_open_until_it_is_over_or_its_time_has_passed() -> None:
    now = 0.0
    tasks = OpenTasks(lambda: now)
    tasks.note(Task("short", False, 60))
    tasks.note(Task("endless", False))
    tasks.note(Task("boundless", False, 1e12))
    now = 59
    tasks.note(Task("short", False, 60))  # the time starts at the creation
    now = 61
    assert tasks
    assert "short" not in tasks
    tasks.note(Task("endless", True))
    assert tasks
    now = MAX_OPEN_S
    assert not tasks


def test_tasks_without_end_are_not_all_kept() -> None:
    tasks = OpenTasks(lambda: 0.0)
    for number in range(MAX_TASKS + 5):
        tasks.note(Task(str(number), False, 60))
    assert "4" not in tasks
    assert "5" in tasks
