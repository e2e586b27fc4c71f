"""The quotas of agents: sliding windows, exact for all processes and across restarts."""

import math
import os
import sqlite3
from collections.abc import Iterator, Mapping

from msgspec import Struct

from portico.agents.routing import quota_rows as rows
from portico.agents.routing.usage_totals import AgentTotals, totals_in
from portico.agents.turns.usage import AgentUsage
from portico.core.config.agents_schema import RateLimit
from portico.core.model.wording import plain
from portico.core.state.database import Database, FileDatabase, MemoryDatabase
from portico.library.tasks.store.record import Clocks

MINUTE_S, DAY_S = 60.0, 86400.0
_REQUESTS = {"requests_per_minute": MINUTE_S, "requests_per_day": DAY_S}
_AMOUNTS = {"tokens_per_day": "tokens", "cost_per_day": "cost"}
_MAX_AMOUNT = 2**53
_DEFAULT_CLOCKS = Clocks()


class LimitStatus(Struct, frozen=True, kw_only=True):
    """One limit of an agent, and how much of it is used."""

    limit: str
    """The name of its config key."""
    allowed: float
    used: float
    free_at: float | None = None
    """When the next prompt may start, by the wall clock; None for now."""

    @property
    def left(self) -> float:
        """The unused part; tokens and cost may exceed their limits."""
        return max(0, self.allowed - self.used)


class OverQuota(Struct, frozen=True, kw_only=True):
    """The limit that keeps an agent from starting a prompt for the longest time."""

    agent: str
    limit: str
    allowed: float
    used: float
    free_at: float
    """When a prompt may start, by the wall clock."""
    wait_s: float

    def __str__(self) -> str:
        used = f"{plain(self.used)} of {plain(self.allowed)} {self.limit.replace('_', ' ')}"
        return f"{self.agent} is over its quota ({used}): {slot(self.free_at, self.wait_s)}"


class QuotaStatus(Struct, frozen=True, kw_only=True):
    """The use of an agent's quotas at one time."""

    limits: tuple[LimitStatus, ...] = ()
    """Only those that are set."""
    prompts: int = 0
    """In the last 24 hours."""
    last_prompt: float | None = None
    """When the latest of them started, on a clock that never goes back."""
    over: OverQuota | None = None


_NOTHING: Mapping[str, int] = {}


class AgentQuotas:
    """Counts the prompts of agents, and what their tasks used."""

    def __init__(self, database: Database, clocks: Clocks) -> None:
        self._database = database
        self._clocks = clocks

    async def start(self, agent: str, limits: RateLimit, key: str = "") -> OverQuota | None:
        """Count a prompt that starts now; if a limit forbids it, return that and count nothing.
        With its key it can be taken back."""

        def job(db: sqlite3.Connection) -> OverQuota | None:
            now = rows.advance(db, self._clocks)
            over = self._over(agent, now, self._statuses(db, agent, limits, now))
            if over is None:
                rows.add_prompt(db, agent, now, DAY_S, key)
            return over

        return await self._database.write(job)

    async def refund(self, agent: str, key: str) -> None:
        """Do not count a prompt that was never sent."""
        await self._database.write(lambda db: rows.remove_prompt(db, agent, key))

    async def status(self, limits: Mapping[str, RateLimit]) -> dict[str, QuotaStatus]:
        """Return the use of each agent's quotas, without counting anything."""

        def job(db: sqlite3.Connection) -> dict[str, QuotaStatus]:
            now = rows.present(db, self._clocks)
            return {agent: self._status(db, agent, one, now) for agent, one in limits.items()}

        found = await self._database.read(job)
        return _unused(limits) if found is None else found

    async def finish(
        self,
        task: str,
        agent: str,
        outcome: str,
        usage: AgentUsage,
        seconds: Mapping[str, float | None] = _NOTHING,
        permissions: Mapping[str, int] = _NOTHING,
    ) -> bool:
        """Count a finished task, its usage, the seconds of its stages and its permission requests
        by decision; False if the task was counted before."""
        tokens, cost = _reported(usage.tokens), _reported(usage.cost)
        more = {rows.STAGE + stage: took_s for stage, took_s in seconds.items()}
        more |= {rows.PERMISSION + decision: count for decision, count in permissions.items()}

        def job(db: sqlite3.Connection) -> bool:
            now = rows.advance(db, self._clocks)
            if not rows.add_finished(db, task, agent, now, tokens, cost, DAY_S):
                return False
            rows.add_outcome(db, agent, outcome)
            if tokens is not None:
                rows.add_amount(db, agent, rows.TOKENS, tokens)
            if cost is not None:
                rows.add_amount(db, agent, rows.COST + usage.currency, cost)
            for unit, amount in more.items():
                if amount is not None:
                    rows.add_amount(db, agent, unit, amount)
            return True

        return await self._database.write(job)

    async def totals(self) -> dict[str, AgentTotals]:
        """Return the totals of all agents that have finished a task."""
        return await self._database.read(totals_in) or {}

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()

    def _status(
        self, db: sqlite3.Connection, agent: str, limits: RateLimit, now: float
    ) -> QuotaStatus:
        statuses = self._statuses(db, agent, limits, now)
        return QuotaStatus(
            limits=statuses,
            prompts=rows.prompt_count(db, agent, now - DAY_S),
            last_prompt=rows.last_prompt(db, agent),
            over=self._over(agent, now, statuses),
        )

    def _statuses(
        self, db: sqlite3.Connection, agent: str, limits: RateLimit, now: float
    ) -> tuple[LimitStatus, ...]:
        # Times of quotas become times of the wall clock, which may show less.
        to_wall = self._clocks.wall() - now
        return tuple(
            LimitStatus(
                limit=name,
                allowed=allowed,
                used=used,
                free_at=None if free_at is None else free_at + to_wall,
            )
            for name, allowed, used, free_at in _uses(db, agent, limits, now)
        )

    def _over(self, agent: str, now: float, statuses: tuple[LimitStatus, ...]) -> OverQuota | None:
        full = [(one.free_at, one) for one in statuses if one.free_at is not None]
        if not full:
            return None
        free_at, worst = max(full, key=lambda pair: pair[0])
        return OverQuota(
            agent=agent,
            limit=worst.limit,
            allowed=worst.allowed,
            used=worst.used,
            free_at=free_at,
            wait_s=max(0.0, free_at - self._clocks.wall()),
        )


def _uses(
    db: sqlite3.Connection, agent: str, limits: RateLimit, now: float
) -> Iterator[tuple[str, float, float, float | None]]:
    """The name, value and use of each limit that is set, and the time at which it allows more."""
    for name, window_s in _REQUESTS.items():
        allowed = getattr(limits, name)
        if allowed is not None:
            after = now - window_s
            used = rows.prompt_count(db, agent, after)
            free_at = None
            if used >= allowed:
                free_at = rows.prompt_at(db, agent, after, used - allowed) + window_s
            yield name, allowed, used, free_at
    for name, column in _AMOUNTS.items():
        allowed = getattr(limits, name)
        if allowed is not None:
            found = rows.spent(db, agent, column, now - DAY_S)
            yield name, allowed, math.fsum(amount for _, amount in found), _free(found, allowed)


def _free(found: list[tuple[float, float]], allowed: float) -> float | None:
    """The time at which less than the allowed amount is left in the window; None for now."""
    total = 0.0
    for at, amount in reversed(found):
        total += amount
        if total >= allowed:
            return at + DAY_S
    return None


def _unused(limits: Mapping[str, RateLimit]) -> dict[str, QuotaStatus]:
    """The status of all quotas before the first prompt."""
    return {
        agent: QuotaStatus(
            limits=tuple(
                LimitStatus(limit=name, allowed=allowed, used=0)
                for name in (*_REQUESTS, *_AMOUNTS)
                if (allowed := getattr(one, name)) is not None
            )
        )
        for agent, one in limits.items()
    }


def _reported(amount: float | None) -> float | None:
    """An amount that an agent reported, if it makes sense."""
    if amount is None or not 0 <= amount < math.inf:
        return None
    return min(amount, _MAX_AMOUNT)


def slot(free_at: float, wait_s: float) -> str:
    """Format the time of the next free slot."""
    from datetime import UTC, datetime

    try:
        at = datetime.fromtimestamp(math.ceil(free_at), UTC)
    except (ValueError, OverflowError, OSError):  # a clock beyond the years of a calendar
        return f"the next slot is free in {math.ceil(wait_s)} s"
    return f"the next slot is free in {math.ceil(wait_s)} s, at {at:%Y-%m-%dT%H:%M:%SZ}"


def quotas_in_memory(clocks: Clocks = _DEFAULT_CLOCKS) -> AgentQuotas:
    """Return quotas that end with this process."""
    return AgentQuotas(MemoryDatabase(rows.FORMAT), clocks)


def quotas_in_folder(folder: str, clocks: Clocks = _DEFAULT_CLOCKS) -> AgentQuotas:
    """Return the quotas in a folder, which other processes may use too."""
    path = os.path.join(folder, "quotas.db")
    return AgentQuotas(FileDatabase(path, rows.FORMAT), clocks)
