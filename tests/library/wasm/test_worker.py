"""A worker hosts one component, and speaks MCP like any other server."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.errors import McpError, TargetError
from portico.edge.client.client import Client
from tests.library.wasm.hosting import WAIT_S, attacking_guest, hosted, own_guest, process_of, said
from tests.library.wasm.wat_guests import CLASHING, IMPORTING, SLEEPER, written


def environment_names(pid: int) -> set[bytes]:
    raw = Path(f"/proc/{pid}/environ").read_bytes()
    return {part.partition(b"=")[0] for part in raw.split(b"\0") if part}


async def cancelled(client: Client, tool: str, /, **arguments: Any) -> None:
    """Call a tool that does not end, and cancel the call once its guest runs."""
    call = asyncio.create_task(client.call_tool(tool, arguments))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, 0.5)


def describe(source: Path, text: str) -> None:
    Path(f"{source}.toml").write_text(text)


async def test_a_worker_answers_for_every_capability(tmp_path: Path) -> None:
    async with hosted(own_guest(), tmp_path) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["add", "fail"]
        added = await client.call_tool("add", {"a": 1, "b": 2})
        assert added["structuredContent"] == {"sum": 3}
        assert await said(client, "fail") == "failed: it failed"
        read = await client.request("resources/read", {"uri": "note://1"})
        assert read["contents"] == [{"uri": "note://1", "text": "hello"}]
        filled = await client.request("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}})
        assert filled["messages"][0]["content"]["text"] == "Hello Ada"
        ref = {"ref": {"type": "ref/prompt", "name": "greet"}}
        asked = {**ref, "argument": {"name": "who", "value": "A"}}
        assert (await client.request("completion/complete", asked))["completion"] == {
            "values": ["Ada"]
        }


async def test_unknown_names_are_errors_of_the_protocol(tmp_path: Path) -> None:
    async with hosted(own_guest(), tmp_path) as client:
        with pytest.raises(McpError, match="unknown tool: nobody"):
            await client.call_tool("nobody")
        with pytest.raises(McpError, match="unknown tool: trap"):  # not in its list
            await client.call_tool("trap")
        with pytest.raises(McpError, match="unknown resource: note://9"):
            await client.request("resources/read", {"uri": "note://9"})


async def test_an_error_of_the_guest_keeps_its_code_and_data(tmp_path: Path) -> None:
    async with hosted(attacking_guest(), tmp_path) as client:
        with pytest.raises(McpError, match="refused") as caught:
            await client.call_tool("refuse")
        assert (caught.value.code, caught.value.data) == (-32602, {"why": "test"})
        with pytest.raises(McpError, match="not a JSON object"):
            await client.call_tool("broken")
        with pytest.raises(McpError, match="not a JSON object"):
            await client.call_tool("list")


async def test_each_call_has_an_instance_of_its_own(tmp_path: Path) -> None:
    async with hosted(attacking_guest(), tmp_path) as client:
        assert [await said(client, "count") for _ in range(3)] == ["1", "1", "1"]


async def test_a_shared_instance_keeps_its_state_until_it_traps(tmp_path: Path) -> None:
    async with hosted(attacking_guest(), tmp_path, instance="shared", time_s=2.0) as client:
        assert [await said(client, "count") for _ in range(3)] == ["1", "2", "3"]
        assert "took longer than 2 s" in await said(client, "loop")
        assert await said(client, "count") == "1"


async def test_loops_memory_recursion_and_large_answers_end_in_words(tmp_path: Path) -> None:
    async with hosted(attacking_guest(), tmp_path, time_s=3.0, memory_mb=32) as client:
        loop = asyncio.create_task(said(client, "loop"))
        assert await said(client, "add", a=1, b=2) == "3"
        assert await loop == (
            "failed: guest took longer than 3 s; grant more time, or ask for less"
        )
        assert "failed" in await said(client, "grow")
        assert "failed" in await said(client, "recurse")
        assert "more than the limit of 4 MB" in await said(client, "huge", bytes=5_000_000)
        assert await said(client, "add", a=1, b=2) == "3"


async def test_traps_are_failures_of_the_tool(tmp_path: Path) -> None:
    async with hosted(written(SLEEPER, tmp_path), tmp_path) as client:
        assert "unreachable" in await said(client, "trap")
        assert await said(client, "recurse") == "failed: guest overflowed its stack"
        assert "integer divide by zero" in await said(client, "divide", a=1, b=0)
        assert await said(client, "divide", a=6, b=3) == "2"
        assert "300 is out" not in await said(client, "add", a=300, b=1)
        refused = await said(client, "add", a=-1, b=1)
        assert refused.startswith("failed: invalid arguments of add: a: -1 is out of range")


async def test_a_guest_asleep_in_wasi_costs_only_the_worker(tmp_path: Path) -> None:
    source = written(SLEEPER, tmp_path)
    async with hosted(source, tmp_path, time_s=2.0, concurrency=2) as client:
        process = process_of(client)
        asleep = asyncio.create_task(said(client, "sleep", ms=600_000))
        beside = asyncio.create_task(said(client, "sleep", ms=1_000))
        waiting = asyncio.create_task(said(client, "add", a=1, b=2))
        assert await waiting == "3"
        assert await beside == "1000"
        assert "waiting in a function of WASI" in await asleep
        # A fresh worker on the same pipes, which nobody had to start.
        assert await said(client, "add", a=3, b=4) == "7"
        assert process_of(client) == process


async def test_calls_that_wait_for_a_stuck_worker_run_in_the_next(tmp_path: Path) -> None:
    source = written(SLEEPER, tmp_path)
    async with hosted(source, tmp_path, time_s=1.0, concurrency=1) as client:
        asleep = asyncio.create_task(said(client, "sleep", ms=600_000))
        waiting = [asyncio.create_task(said(client, "add", a=n, b=1)) for n in range(10)]
        assert "waiting in a function of WASI" in await asleep
        assert [await one for one in waiting] == [str(n + 1) for n in range(10)]


async def test_a_call_that_ends_with_a_stuck_one_says_so(tmp_path: Path) -> None:
    source = written(SLEEPER, tmp_path)
    async with hosted(source, tmp_path, time_s=4.0, concurrency=2) as client:
        asleep = asyncio.create_task(said(client, "sleep", ms=600_000))
        assert await said(client, "sleep", ms=3_500) == "3500"
        beside = asyncio.create_task(said(client, "sleep", ms=600_000))
        assert "waiting in a function of WASI" in await asleep
        assert "another call of it could not be interrupted" in await beside
        assert await said(client, "add", a=3, b=4) == "7"


async def test_a_cancelled_call_ends_long_before_its_time(tmp_path: Path) -> None:
    async with hosted(attacking_guest(), tmp_path, time_s=10 * WAIT_S, concurrency=1) as client:
        await cancelled(client, "loop")
        assert await said(client, "add", a=1, b=2) == "3"


async def test_a_cancelled_call_of_a_shared_instance_costs_only_its_state(tmp_path: Path) -> None:
    limits = {"time_s": 10 * WAIT_S, "instance": "shared"}
    async with hosted(attacking_guest(), tmp_path, **limits) as client:
        assert [await said(client, "count") for _ in range(2)] == ["1", "2"]
        await cancelled(client, "loop")
        assert await said(client, "count") == "1"


async def test_a_cancelled_call_that_sleeps_in_wasi_costs_no_other_call(tmp_path: Path) -> None:
    source = written(SLEEPER, tmp_path)
    async with hosted(source, tmp_path, time_s=10 * WAIT_S, concurrency=2) as client:
        beside = asyncio.create_task(said(client, "sleep", ms=6_000))
        await cancelled(client, "sleep", ms=3_000)
        assert await beside == "6000"


async def test_a_worker_has_no_environment_but_its_settings_and_its_mark(tmp_path: Path) -> None:
    async with hosted(own_guest(), tmp_path) as client:
        names = environment_names(process_of(client))
        assert names == {b"PORTICO_WASM", b"PORTICO_CHILD"}


async def test_a_killed_worker_ends_its_calls_at_once(tmp_path: Path) -> None:
    async with hosted(attacking_guest(), tmp_path) as client:
        loop = asyncio.create_task(client.call_tool("loop"))
        await said(client, "add", a=1, b=2)
        os.kill(process_of(client), signal.SIGKILL)
        with pytest.raises(TargetError, match="SIGKILL"):
            await loop


async def test_an_import_that_nobody_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"imports acme:db/store@1\.0\.0, which Portico does"):
        async with hosted(written(IMPORTING, tmp_path), tmp_path) as client:
            await client.list_tools()


async def test_names_that_clash_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"api/get and api/get would both be the tool 'get'"):
        async with hosted(written(CLASHING, tmp_path), tmp_path) as client:
            await client.list_tools()


async def test_a_sidecar_of_functions_that_do_not_exist_is_refused(tmp_path: Path) -> None:
    source = written(SLEEPER, tmp_path)
    describe(source, '[functions.nothing]\ndescription = "x"\n')
    with pytest.raises(TargetError, match="describes 'nothing', which the component does not"):
        async with hosted(source, tmp_path) as client:
            await client.list_tools()
