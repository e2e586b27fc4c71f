"""Tasks that are held, because something of them was not collected, are not removed."""

from portico.library.tasks.store.record import COMPLETED, INTERRUPTED, TaskLimits
from tests.support.task_stores import OpenStore, SetClocks, running

ME = "local"
YEAR_S = 365 * 86400.0


async def test_a_held_task_is_kept_until_it_is_let_go(opened: OpenStore, now: SetClocks) -> None:
    async with opened() as store:
        task = await store.submit(ME, "tool", b"", ttl_s=1)
        _, lease = await running(store)
        await store.hold(lease)
        await store.finish(lease, COMPLETED, b"")
        for _ in range(24):  # a single large step would be a clock that was set
            now.advance(YEAR_S / 12)
            assert await store.prune() == 0
        assert await store.remove_finished(ME) == 0
        kept = await store.get(ME, task.id)
        assert kept is not None
        assert kept.is_held
        freed = await store.release_hold(task.id)
        assert freed is not None
        assert not freed.is_held
        assert await store.get(ME, task.id) is None
        assert await store.prune() == 1


async def test_held_tasks_do_not_count_as_surplus(opened: OpenStore, now: SetClocks) -> None:
    async with opened(TaskLimits(kept=1, grace_s=300)) as store:
        for is_held in (True, False, True, False):
            await store.submit(ME, "tool", b"")
            _, lease = await running(store)
            await store.hold(lease, is_held=is_held)
            await store.finish(lease, COMPLETED, b"")
            now.advance(301)
        page = await store.page(ME)
        assert page is not None
        assert [task.is_held for task in page.tasks] == [False, True, True]


async def test_a_hold_survives_the_loss_of_the_worker(opened: OpenStore, now: SetClocks) -> None:
    async with opened() as store:
        task = await store.submit(ME, "tool", b"")
        _, lease = await running(store)
        await store.hold(lease)
        now.advance(60)
        await store.recover()
        lost = await store.get(ME, task.id)
        assert lost is not None
        assert (lost.state, lost.is_held) == (INTERRUPTED, True)


async def test_a_task_that_was_removed_cannot_be_let_go(opened: OpenStore) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        assert await store.release_hold("ptk_unknown") is None
