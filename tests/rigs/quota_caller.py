"""Starts prompts from many tasks at once, as soon as a line arrives; prints how many it may start.

python quota_caller.py FOLDER CALLERS ATTEMPTS LIMIT
"""

import asyncio
import sys

from portico.agents.routing.quotas import AgentQuotas, quotas_in_folder
from portico.core.config.agents_schema import RateLimit


def write(line: str) -> None:
    """Send a line to the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def call(quotas: AgentQuotas, limits: RateLimit, attempts: int) -> int:
    """The number of prompts that one caller may start."""
    return sum([await quotas.start("agent", limits) is None for _ in range(attempts)])


async def main() -> None:
    """Run all callers."""
    folder, callers, attempts, limit = sys.argv[1], *map(int, sys.argv[2:])
    quotas = quotas_in_folder(folder)
    limits = RateLimit(requests_per_day=limit)
    write("ready")
    await asyncio.to_thread(sys.stdin.readline)
    started = await asyncio.gather(*(call(quotas, limits, attempts) for _ in range(callers)))
    write(str(sum(started)))
    await quotas.close()


asyncio.run(main())
