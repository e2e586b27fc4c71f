"""A worker process on a task store: `task_worker.py FOLDER LEDGER OWNER [hold]`.

It writes each task that it has begun to the ledger. With `hold` it begins all tasks, and finishes
them only once it reads a line.
"""

import asyncio
import os
import sys

from portico.library.tasks.store.record import COMPLETED, Lease
from portico.library.tasks.store.store import TaskStore, tasks_in_folder

KINDS = ("plain", "repeatable")
LEASE_S = float(os.environ.get("LEASE_S", "1"))


def note(ledger: str, words: str) -> None:
    """Write one line, whole even if the process is killed."""
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, words.encode() + b"\n")
    os.close(handle)


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


async def begin_next(store: TaskStore, ledger: str, owner: str) -> Lease | None:
    task = await store.claim(owner, KINDS, LEASE_S)
    if task is None or task.lease is None:
        return None
    await store.begin(task.lease)
    note(ledger, task.id)
    return task.lease


async def main(folder: str, ledger: str, owner: str, *mode: str) -> None:
    store = tasks_in_folder(folder)
    held = []
    while (lease := await begin_next(store, ledger, owner)) is not None:
        if mode:
            held.append(lease)
        else:
            await store.finish(lease, COMPLETED, owner.encode())
    if mode:
        say(len(held))
        await asyncio.to_thread(sys.stdin.readline)
        done = [await store.finish(lease, COMPLETED, owner.encode()) for lease in held]
        say(sum(task is not None for task in done))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
