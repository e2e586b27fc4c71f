"""A process that runs one delegation, to be killed: prints its id, and never ends."""

import asyncio
import sys
from pathlib import Path

from tests.agents.worktrees.repositories import delegations, worker_entry


async def main(state: str, repo: str, gate: str) -> None:
    """Delegate a task whose agent changes a file, opens the gate, and goes on."""
    changed = {"shell": f"echo half > a.txt; echo > {gate}"}
    async with delegations(Path(state), worker_entry("waiter", changed, {"hang": True})) as work:
        task = await work.submit("waiter", Path(repo))
        sys.stdout.write(f"{task.id}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
