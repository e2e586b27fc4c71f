"""Many clients with the same ids before a server that dies and hangs: each gets its own answers."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.rigs.running import ledger
from tests.wrap.crowd import Served, Speaker, speaking

CLIENTS = 200
CALLS = 100_000
EACH = CALLS // CLIENTS
HANGS_EVERY = 125
KILLS_EVERY_S = 2.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("load")]


class Tally:
    """The outcome of the calls, by nonce."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.failed: list[str] = []
        self.why: Counter[str] = Counter()
        self.kills = 0


async def one_client(number: int, speaker: Speaker, tally: Tally) -> None:
    """Call until a number of calls succeeded; all clients use the same ids."""
    left, id = EACH, 0
    while left:
        id += 1
        nonce = f"{number}-{id}"
        hangs = id % HANGS_EVERY == number % HANGS_EVERY
        # Half of them have a limit of their own, the others the server's.
        limit = {"portico/timeoutS": 0.3} if hangs and number % 4 < 2 else {}
        answer = await speaker.called(id, "hang" if hangs else "echo", nonce, **limit)
        if "error" in answer:
            tally.failed.append(nonce)
            assert "data" in answer["error"], answer
            tally.why[answer["error"]["data"]["kind"]] += 1
            await asyncio.sleep(0.02)  # as any client would, rather than to hammer
        else:
            assert not hangs
            assert answer["result"]["content"] == [{"type": "text", "text": nonce}], number
            tally.answered.append(nonce)
            left -= 1


async def killer(served: Served, tally: Tally) -> None:
    """End the server repeatedly, but never before it has answered a call."""
    answered = -1
    while True:
        await asyncio.sleep(KILLS_EVERY_S)
        if len(tally.answered) == answered:
            continue  # a machine that is busy elsewhere starts it slowly
        answered = len(tally.answered)
        for pid in served.upstreams("ledger.py"):
            os.kill(pid, signal.SIGKILL)
            tally.kills += 1


async def crowd(served: Served, tally: Tally) -> None:
    async with speaking(served.port, CLIENTS) as speakers:
        killing = asyncio.create_task(killer(served, tally))
        async with asyncio.TaskGroup() as clients:
            for number, speaker in enumerate(speakers):
                clients.create_task(one_client(number, speaker, tally))
        killing.cancel()


def test_of_100_000_calls_none_is_missing_crossed_or_doubled(tmp_path: Path) -> None:
    book, tally = tmp_path / "ledger", Tally()
    served = Served(tmp_path / "home", "--call-timeout", "2", "--", *ledger(book))
    try:
        asyncio.run(crowd(served, tally))
    finally:
        served.stop()
    assert len(tally.answered) == CALLS
    assert tally.kills >= 3
    assert set(tally.why) <= {"exited", "timeout", "closed"}, tally.why
    assert tally.why["timeout"] >= CLIENTS
    # A call is answered or fails, once; and the server saw none of them twice.
    outcomes = Counter(tally.answered + tally.failed)
    assert max(outcomes.values()) == 1
    seen = Counter(book.read_text().splitlines())
    assert max(seen.values()) == 1
    assert set(tally.answered) <= set(seen)
    assert set(seen) <= set(outcomes)
