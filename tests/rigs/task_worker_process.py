"""A process that runs the tasks of a store with a worker: `... FOLDER LEDGER`.

It writes the start and the end of each effect to the ledger, and ends when its input does. The
input of a task is the time that its effect takes, in ms.
"""

import asyncio
import os
import sys

from portico.library.tasks.store.record import TaskLimits
from portico.library.tasks.store.store import tasks_in_folder
from portico.library.tasks.worker.work import RunOutcome, Work
from portico.library.tasks.worker.worker import TaskWorker, WorkerSettings

LEASE_S = 1.0
MANY = TaskLimits(in_progress=100_000, kept=100_000)


class EffectRunner:
    """A runner whose effect is a line in the ledger."""

    begins_itself = False

    def __init__(self, ledger: str, *, is_repeatable: bool) -> None:
        self.is_repeatable = is_repeatable
        self._ledger = ledger

    async def run(self, work: Work) -> RunOutcome:
        """Have the effect."""
        self._note(f"start {work.id}")
        await asyncio.sleep(int(work.input) / 1000)
        self._note(f"end {work.id}")
        return RunOutcome(payload=f"{work.id} by {os.getpid()}".encode())

    def _note(self, words: str) -> None:
        """Write one line, whole even if the process is killed."""
        handle = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, words.encode() + b"\n")
        os.close(handle)


async def main(folder: str, ledger: str) -> None:
    """Run tasks until the input ends."""
    settings = WorkerSettings(lease_s=LEASE_S, running=4)
    worker = TaskWorker(lambda: tasks_in_folder(folder, MANY), settings)
    for kind in ("plain", "repeatable"):
        worker.register(kind, EffectRunner(ledger, is_repeatable=kind == "repeatable"))
    worker.start()
    await asyncio.to_thread(sys.stdin.read)
    await worker.close(60)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
