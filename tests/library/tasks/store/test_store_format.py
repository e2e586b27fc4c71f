"""A task store of an earlier format."""

from contextlib import closing
from hashlib import blake2b
from pathlib import Path

from msgspec import json

from portico.core.state.database_file import DatabaseFormat, connect, prepare
from portico.library.tasks.store import rows
from portico.library.tasks.store.record import COMPLETED, STORE_FILE, TaskLimits, TaskRecord
from portico.library.tasks.store.store import tasks_in_folder
from tests.support.task_stores import SetClocks, running

ME = "local"
_INSERT = (
    "INSERT INTO tasks (id, principal, kind, state, open, expires_at, record) "
    "VALUES (?, ?, 'tool', 'completed', 0, 1e12, ?)"
)


def finished(id: str, at: float) -> TaskRecord:
    return TaskRecord(
        id=id,
        principal=ME,
        kind="tool",
        idempotency_key="",
        created_at=0,
        updated_at=at,
        finished_at=at,
        ttl_s=1e12,
        state=COMPLETED,
    )


async def test_finished_tasks_of_the_first_format_are_ordered_by_their_end(tmp_path: Path) -> None:
    path = str(tmp_path / STORE_FILE)
    name, application_id, steps = rows.FORMAT
    prepare(path, DatabaseFormat(name, application_id, steps[:1]))
    with closing(connect(path)) as db:
        for task in (finished("late", 2000), finished("early", 1000)):
            record = json.encode(task)
            digest = blake2b(record, digest_size=16).digest()
            db.execute(_INSERT, (task.id, ME, digest + record))
    store = tasks_in_folder(str(tmp_path), TaskLimits(kept=2), SetClocks().clocks)
    await store.submit(ME, "tool", b"")
    new, lease = await running(store)
    await store.finish(lease, COMPLETED, b"")
    page = await store.page(ME)
    assert page is not None
    assert [task.id for task in page.tasks] == [new.id, "late"]
    await store.close()
