"""The values of sessions, in memory and in a file: typed, bounded, apart, and removed with age."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.core.model.errors import SessionError
from portico.core.state.session_store import (
    STORE_FILE,
    SessionLimits,
    SessionStore,
    sessions_in_folder,
    sessions_in_memory,
)
from portico.core.state.store_error import StoreError
from tests.support.shared import ROOT

DAY_S = 86400.0
Opener = Callable[..., SessionStore]


class SetClock:
    """A clock that only a test moves."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["memory", "file"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Opener:
    def make(**limits: Any) -> SessionStore:
        bounds = SessionLimits(**limits)
        if request.param == "memory":
            return sessions_in_memory(bounds, clock)
        return sessions_in_folder(str(tmp_path), bounds, clock)

    return make


async def value(store: SessionStore, session: str, key: str) -> Any:
    try:
        return await store.get(session, key)
    except KeyError:
        return "nothing"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(min_size=1, max_size=100), kept=VALUES | st.binary())
def test_a_value_returns_with_its_type(key: str, kept: Any) -> None:
    async def kept_and_read() -> Any:
        store = sessions_in_memory()
        await store.set("one", key, kept)
        return await store.get("one", key), await store.keys("one")

    found, keys = asyncio.run(kept_and_read())
    assert (found, type(found), keys) == (kept, type(kept), [key])


async def test_sessions_never_see_each_other(opened: Opener) -> None:
    store = opened()
    await store.set("one", "name", "Ana")
    await store.set("two", "name", "Bo")
    await store.set("two", "other", 1)
    assert await store.get("one", "name") == "Ana"
    assert await value(store, "one", "other") == "nothing"
    assert await store.keys("one") == ["name"]
    await store.clear("two")
    assert (await store.keys("one"), await store.keys("two")) == (["name"], [])
    assert not await store.delete("two", "name")
    assert await store.get("one", "name") == "Ana"


async def test_a_key_is_exactly_what_was_given(opened: Opener) -> None:
    store = opened()
    odd = ["a", "A", "a\0", "a\0b", "a%", "'; DROP TABLE sessions", "ä", "a\u0308"]
    for number, key in enumerate(odd):
        await store.set("one", key, number)
    assert [await store.get("one", key) for key in odd] == list(range(len(odd)))


async def test_a_value_is_replaced_and_deleted(opened: Opener) -> None:
    store = opened()
    await store.set("one", "name", "Ana")
    await store.set("one", "name", b"\xff\0")
    assert await store.get("one", "name") == b"\xff\0"
    assert await store.delete("one", "name")
    assert not await store.delete("one", "name")
    assert await value(store, "one", "name") == "nothing"


async def test_an_integer_is_incremented(opened: Opener) -> None:
    store = opened()
    assert [await store.increment("one", "calls", by) for by in (1, 5, -2)] == [1, 6, 4]
    await store.set("one", "name", True)
    with pytest.raises(SessionError, match="cannot increment 'name': its value is not an integer"):
        await store.increment("one", "name", 1)
    assert await store.get("one", "name") is True


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "a key must not be empty"),
        ("k" * 1025, "is too long: it has 1025 bytes, and 1024 is the limit"),
        ("ä" * 600, "is too long: it has 1200 bytes"),
        ("\ud800", "is not valid Unicode"),
        (5, "a key must be a text, not int"),
    ],
    ids=["empty", "long", "wide", "surrogate", "number"],
)
async def test_a_bad_key_is_refused_everywhere(opened: Opener, key: Any, why: str) -> None:
    store = opened()
    for attempt in (
        store.get("one", key),
        store.set("one", key, 1),
        store.delete("one", key),
        store.increment("one", key, 1),
    ):
        with pytest.raises(SessionError, match=why):
            await attempt


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("x" * 1024 * 1024, "is too large: it has 1048578 bytes, and 1048576 is the limit"),
        (b"x" * (1024 * 1024 + 1), "is too large"),
        (object(), "cannot be stored"),
        (float("nan"), "nan is not a number of JSON"),
        ({"deep": [1.5, float("inf")]}, "inf is not a number of JSON"),
    ],
    ids=["text", "bytes", "object", "nan", "infinity"],
)
async def test_a_bad_value_is_refused_and_the_old_one_stays(
    opened: Opener, bad: Any, why: str
) -> None:
    store = opened()
    await store.set("one", "name", "Ana")
    with pytest.raises(SessionError, match=why):
        await store.set("one", "name", bad)
    assert await store.get("one", "name") == "Ana"


async def test_a_value_of_the_limit_is_kept(opened: Opener) -> None:
    store = opened()
    await store.set("one", "k" * 1024, b"x" * 1024 * 1024)
    assert len(await store.get("one", "k" * 1024)) == 1024 * 1024


async def test_the_limits_of_a_session_lose_nothing(opened: Opener) -> None:
    store = opened(keys=3, session=100)
    for key in "abc":
        await store.set("one", key, 1)
    with pytest.raises(SessionError, match="this session has 3 keys, which is the limit; delete"):
        await store.set("one", "d", 1)
    with pytest.raises(SessionError, match="would take 104 bytes, and 100 is the limit; delete"):
        await store.set("one", "a", b"x" * 99)
    assert [await store.get("one", key) for key in await store.keys("one")] == [1, 1, 1]
    await store.set("two", "d", 1)  # its own limits
    await store.delete("one", "b")
    await store.set("one", "a", b"x" * 90)  # deleted and replaced values count no more
    assert len(await store.get("one", "a")) == 90


async def test_the_limit_of_all_sessions_is_freed_by_those_that_are_not_used(
    opened: Opener, clock: SetClock
) -> None:
    store = opened(total=100, idle_s=DAY_S)
    await store.set("old", "a", b"x" * 90)
    with pytest.raises(
        SessionError, match="the values of all sessions would take 182 bytes, and 100 is"
    ):
        await store.set("new", "a", b"x" * 90)
    assert await store.keys("new") == []
    clock.now += DAY_S + 1
    await store.set("new", "a", b"x" * 90)
    assert await value(store, "old", "a") == "nothing"


async def test_a_session_that_is_not_used_expires_as_a_whole(
    opened: Opener, clock: SetClock
) -> None:
    store = opened(idle_s=DAY_S)
    await store.set("one", "name", "Ana")
    for _ in range(5):
        clock.now += DAY_S - 10
        assert await store.get("one", "name") == "Ana"  # reading is use, too
    clock.now += DAY_S
    assert await value(store, "one", "name") == "nothing"
    assert await store.keys("one") == []
    await store.set("one", "other", 1)
    assert await store.keys("one") == ["other"]


async def test_a_value_expires_by_its_own_time(opened: Opener, clock: SetClock) -> None:
    store = opened()
    await store.set("one", "short", 1, expires_in=60)
    await store.set("one", "long", 1)
    clock.now += 59
    assert await store.increment("one", "short", 1) == 2  # its time stays
    clock.now += 1
    assert await value(store, "one", "short") == "nothing"
    assert await store.keys("one") == ["long"]
    assert not await store.delete("one", "short")
    assert await store.increment("one", "short", 1) == 1
    for bad in (0, -1, float("inf"), float("nan")):
        with pytest.raises(SessionError, match="expires_in must be more than 0 seconds"):
            await store.set("one", "short", 1, expires_in=bad)


async def test_expired_data_is_removed_from_the_file(tmp_path: Path, clock: SetClock) -> None:
    store = sessions_in_folder(str(tmp_path), SessionLimits(idle_s=DAY_S, total=100_000), clock)
    for number in range(50):
        await store.set(f"s{number}", "a", b"x" * 1000, expires_in=60 if number % 2 else None)
    clock.now += 61
    await store.prune()
    clock.now += DAY_S
    await store.prune()
    for number in range(90):
        await store.set("new", f"k{number}", b"x" * 1000)  # nothing else counts any more
    assert [await store.keys(f"s{number}") for number in range(50)] == [[]] * 50
    assert len(await store.keys("new")) == 90


async def test_values_survive_the_process(tmp_path: Path) -> None:
    first = sessions_in_folder(str(tmp_path))
    await first.set("one", "name", {"first": "Ana"})
    await first.close()
    second = sessions_in_folder(str(tmp_path))
    assert await second.get("one", "name") == {"first": "Ana"}
    await second.close()
    assert (tmp_path / STORE_FILE).stat().st_mode & 0o077 == 0


async def test_a_damaged_store_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / STORE_FILE).write_bytes(b"not a database" * 100)
    store = sessions_in_folder(str(tmp_path))
    with pytest.raises(StoreError, match="cannot open the session store"):
        await store.set("one", "name", 1)
    assert (tmp_path / STORE_FILE).read_bytes() == b"not a database" * 100


COUNTING = """
import asyncio, sys
from portico.core.state.session_store import sessions_in_folder

async def count():
    store = sessions_in_folder(sys.argv[1])
    for _ in range(int(sys.argv[2])):
        print(await store.increment("shared", "calls", 1), flush=True)

asyncio.run(count())
"""


def counting(folder: Path, times: int) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-c", COUNTING, str(folder), str(times)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)


async def test_processes_lose_no_increment_of_each_other(tmp_path: Path) -> None:
    processes = [counting(tmp_path, 40) for _ in range(4)]
    seen = [
        int(line) for process in processes for line in process.communicate(timeout=120)[0].split()
    ]
    assert sorted(seen) == list(range(1, 161))
    store = sessions_in_folder(str(tmp_path))
    assert await store.get("shared", "calls") == 160
    await store.close()


async def test_a_killed_process_loses_nothing_that_it_was_told_is_kept(tmp_path: Path) -> None:
    process = counting(tmp_path, 100_000)
    assert process.stdout is not None
    last = [int(process.stdout.readline()) for _ in range(20)][-1]
    os.kill(process.pid, signal.SIGKILL)
    rest = process.communicate(timeout=60)[0].split(b"\n")
    last = max([last, *(json.loads(line) for line in rest[:-1] if line)])
    store = sessions_in_folder(str(tmp_path))
    assert await store.get("shared", "calls") in (last, last + 1)  # the next one may be kept too
    await store.close()
