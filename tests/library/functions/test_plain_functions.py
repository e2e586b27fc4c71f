"""Plain functions as tools: each in a thread, as many as there may be."""

import asyncio
import threading

import pytest

from portico import Server
from portico.library.functions import invoke
from portico.library.functions.threads import Threads
from tests.support.messages import call, text_of


async def test_plain_functions_do_not_block_each_other_however_many_hang() -> None:
    server = Server("t")
    release = threading.Event()
    server.add_tool(
        {"name": "hang", "inputSchema": {"type": "object"}}, lambda arguments: release.wait(30)
    )
    server.add_tool({"name": "quick", "inputSchema": {"type": "object"}}, lambda arguments: "done")
    hung = [asyncio.ensure_future(call(server, "hang")) for _ in range(40)]
    assert text_of(await call(server, "quick")) == "done"
    release.set()
    await asyncio.gather(*hung)


async def test_too_many_plain_functions_are_told_and_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(invoke, "threads", Threads(1))
    server = Server("t")
    began, over = threading.Event(), threading.Event()

    @server.tool
    def long() -> str:
        """Take a while."""
        began.set()
        over.wait()
        return "done"

    first = asyncio.create_task(call(server, "long"))
    await asyncio.to_thread(began.wait)
    told = await call(server, "long")
    over.set()
    assert text_of(await first) == "done"
    assert told["isError"]
    assert "the limit of 1 running plain functions is reached" in text_of(told)
    assert caplog.records == []


async def test_a_plain_function_that_found_no_thread_is_not_run_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(invoke, "threads", Threads())
    server = Server("t")
    runs: list[int] = []

    @server.tool
    def note(number: int) -> str:
        """Remember that it ran."""
        runs.append(number)
        return "noted"

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", no_more)
        told = await call(server, "note", {"number": 1})
    assert text_of(told) == "can't start new thread; try again later"
    for number in (2, 3):
        await call(server, "note", {"number": number})
    assert runs == [2, 3]
