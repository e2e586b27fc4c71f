"""Guests that misbehave in every way at once, while another component answers normally."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from portico.edge.client.client import Client
from tests.library.wasm.hosting import attacking_guest, hosted, own_guest, process_of, said
from tests.library.wasm.wat_guests import SLEEPER, written
from tests.support.soak import times

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("wasm-attacks")]

ATTACKS = times(100, 1000)
SCRIPTED = (
    *("loop", "recurse", "grow", "huge"),
    *("trap", "overflow", "divide"),
)
ASLEEP_EVERY = 25
"""A guest that is asleep in WASI costs its worker, so there are few of them."""


async def attack(name: str, scripted: Client, written_by_hand: Client) -> str:
    if name == "huge":
        return await said(scripted, "huge", bytes=5_000_000)
    if name in ("loop", "recurse", "grow"):
        return await said(scripted, name)
    if name == "asleep":
        return await said(written_by_hand, "sleep", ms=600_000)
    if name == "divide":
        return await said(written_by_hand, "divide", a=1, b=0)
    return await said(written_by_hand, "recurse" if name == "overflow" else name)


async def test_attacks_of_every_kind_disturb_nobody(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    source = written(SLEEPER, tmp_path)
    limits = {"time_s": 0.5, "memory_mb": 32}
    async with (
        hosted(attacking_guest(), tmp_path, **limits) as scripted,
        hosted(source, tmp_path, **limits) as by_hand,
        hosted(own_guest(), tmp_path) as innocent,
    ):
        before = [process_of(one) for one in (scripted, by_hand, innocent)]
        names = [
            "asleep" if number % ASLEEP_EVERY == 0 else random.Random(number).choice(SCRIPTED)
            for number in range(ATTACKS)
        ]
        waiting, outcomes = iter(names), list[str]()

        async def attacker() -> None:
            for name in waiting:
                outcomes.append(await attack(name, scripted, by_hand))

        async with asyncio.TaskGroup() as group:
            attackers = [group.create_task(attacker()) for _ in range(6)]
            answered = 0
            while not all(one.done() for one in attackers):
                added = await innocent.call_tool("add", {"a": answered, "b": 1})
                answered += 1
                assert added["structuredContent"] == {"sum": answered}
        assert len(outcomes) == ATTACKS
        assert [one for one in outcomes if not one.startswith("failed: ")] == []
        assert answered > 0
        assert await said(scripted, "add", a=1, b=2) == "3"
        assert await said(by_hand, "add", a=1, b=2) == "3"
        assert [process_of(one) for one in (scripted, by_hand, innocent)] == before
    done = f"{ATTACKS} attacks, each failed in words; {answered} calls answered beside them"
    record_property("soak", done)


async def test_a_guest_cannot_fill_the_memory_of_its_host(tmp_path: Path) -> None:
    """A list of small values is many times larger for the host than in the guest."""
    async with hosted(written(SWELLING, tmp_path), tmp_path) as client:
        swollen = await said(client, "swell", pages=1900)
        assert (
            swollen == "failed: guest passed more data to its host than one call may; ask for less"
        )
        assert await said(client, "swell", pages=0) == "[]"


async def test_a_worker_that_uses_too_much_memory_is_replaced(tmp_path: Path) -> None:
    """Each of a component's memories is within its limit, but all of them together are not."""
    source = written(MANY_MEMORIES, tmp_path)
    async with hosted(source, tmp_path, memory_mb=64, concurrency=1) as client:
        process = process_of(client)
        filled = await said(client, "fill", pages=1000)
        assert filled.startswith("failed: guest was restarted, because it used more than 448 MB")
        assert await said(client, "fill", pages=1) == "0"
        assert process_of(client) == process


SWELLING = """
(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
    (func (export "swell") (param $pages i32) (result i32)
      (drop (memory.grow (local.get $pages)))
      (i32.store (i32.const 8) (i32.const 65536))
      (i32.store (i32.const 12) (i32.mul (local.get $pages) (i32.const 16384)))
      (i32.const 8)))
  (core instance $i (instantiate $m))
  (func (export "swell") (param "pages" u32) (result (list u32))
    (canon lift (core func $i "swell") (memory (core memory $i "memory"))
      (realloc (core func $i "realloc")))))
"""
"""Returns a list of 16,384 numbers for each page of its memory."""

_FILLED = "\n".join(
    f"(drop (memory.grow {n} (local.get 0)))"
    f"(memory.fill {n} (i32.const 0) (i32.const 1) (i32.mul (local.get 0) (i32.const 65536)))"
    for n in range(8)
)
MANY_MEMORIES = f"""
(component
  (core module $m
    {"(memory 1)" * 8}
    (func (export "fill") (param i32) (result i32)
      {_FILLED}
      (if (i32.gt_u (local.get 0) (i32.const 1)) (then (loop (br 0))))
      (i32.const 0)))
  (core instance $i (instantiate $m))
  (func (export "fill") (param "pages" u32) (result u32) (canon lift (core func $i "fill"))))
"""
"""Fills eight memories, and keeps them."""
