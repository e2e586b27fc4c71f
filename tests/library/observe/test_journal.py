"""The gateway's log: whole lines, no values, bounded, and never in the way of a call."""

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.context import Context
from portico.core.model.message import Meta, Request, Response
from portico.core.model.session import Session
from portico.gateway.endpoints.rewrite import unwrap
from portico.library.observe import journal as journals
from portico.library.observe.journal import Journal, open_journal
from portico.library.observe.log_file import append_bounded
from tests.support.backoff import until as eventually
from tests.support.running import WAIT_S
from tests.wrap.standing import until


def call(arguments: Any, name: str = "add", **more: Any) -> Request:
    params = json.dumps({"name": name, "arguments": arguments}).encode()
    return Request(method="tools/call", id=b"1", params=params, name=name, **more)


OK = Response(id=b"1", result=b"{}")


def note(journal: Journal, request: Request, response: Response | None = OK) -> None:
    journal.record_call(request, Context(), "maths", "add", response, 0.0123)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_other_threads_report_events_too(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "log"), pytest.fail)
    await asyncio.to_thread(journal.event, "the index is built again")
    await asyncio.to_thread(journal.record_stderr, "maths", "ready")
    await until_lines(tmp_path / "log", 2)
    journal.close()
    assert [line["kind"] for line in lines_of(tmp_path / "log")] == ["event", "stderr"]


async def until_lines(path: Path, count: int) -> None:
    """Wait until the log has so many lines."""
    async with asyncio.timeout(WAIT_S):
        await eventually(lambda: path.exists() and len(lines_of(path)) >= count)


async def test_each_kind_of_line_says_what_happened_and_no_value(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "log"), pytest.fail)
    meta = Meta(client_info=b'{"name":"some client"}')
    note(journal, call({"a": "s3cret", "b": [17, 18]}, meta=meta))
    journal.record_stderr("maths", "ready")
    journal.event("the config has changed")
    journal.close()
    lines = lines_of(tmp_path / "log")
    assert all(line.pop("time").endswith("Z") for line in lines)
    assert lines == [
        {
            "kind": "call",
            "client": "some client",
            "server": "maths",
            "tool": "add",
            "method": "tools/call",
            "outcome": "ok",
            "ms": 12.3,
            "arguments": "{a:str,b:int[2]}",
        },
        {"kind": "stderr", "server": "maths", "text": "ready"},
        {"kind": "event", "text": "the config has changed"},
    ]
    assert "s3cret" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("arguments", [{"a": 1}, '{"a": 1}'])
async def test_of_an_executed_tool_the_inner_arguments_are_told(
    arguments: Any, tmp_path: Path
) -> None:
    journal = Journal(str(tmp_path / "log"), pytest.fail)
    request = call({"name": "maths__add", "arguments": arguments}, "execute_tool")
    unwrap(request)
    note(journal, request)
    journal.close()
    assert lines_of(tmp_path / "log")[0]["arguments"] == "{a:int}"


async def test_a_session_names_its_client_and_a_uri_loses_its_query(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "log"), pytest.fail)
    session = Session(lambda message: None)
    session.client_info = {"name": "old client"}
    request = Request(method="resources/read", id=b"1", uri="db://t?key=s3cret")
    refused = Response(id=b"1", error=b"{}", code=-32002)
    journal.record_call(request, Context(session=session), "db", request.uri, refused, 0)
    journal.close()
    (line,) = lines_of(tmp_path / "log")
    assert (line["client"], line["tool"], line["outcome"]) == (
        "old client",
        "db://t?...",
        "error -32002",
    )


async def test_lines_are_written_a_moment_later_without_a_close(tmp_path: Path) -> None:
    path = tmp_path / "log"
    journal = Journal(str(path), pytest.fail)
    for _ in range(600):
        note(journal, call({"a": 1}))
    assert not path.exists()
    async with asyncio.timeout(20):
        await eventually(lambda: path.exists() and len(path.read_text().splitlines()) == 600)
    journal.close()
    assert len(lines_of(path)) == 600


async def test_the_usual_place_is_private_and_off_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    off = open_journal("off", pytest.fail)
    note(off, call({}))
    off.record_stderr("maths", "ready")
    off.close()
    assert not (tmp_path / "state").exists()
    journal = open_journal(None, pytest.fail)
    journal.event("started")
    journal.close()
    path = tmp_path / "state" / "logs" / "serve.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_what_is_too_much_is_counted_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MAX_NOTES", 10)
    journal = Journal(str(tmp_path / "log"), pytest.fail)
    for _ in range(25):
        note(journal, call({}))
    journal.close()
    lines = lines_of(tmp_path / "log")
    assert [line["kind"] for line in lines] == ["call"] * 10 + ["event"]
    assert lines[-1]["text"].startswith("15 lines dropped")


async def test_huge_and_strange_things_make_short_whole_lines(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "log"), pytest.fail)
    note(journal, call({"a": "x" * 1_000_000}))
    journal.record_stderr("maths", "half \ud800 a character \x1b[31m" + "x" * 1_000_000)
    journal.event("two\nlines")
    note(journal, Request(method="tools/call", id=b"1", params=b'{"arguments":', name="add"))
    journal.close()
    big, heard, event, broken = lines_of(tmp_path / "log")
    assert big["arguments"].endswith("bytes")
    assert heard["text"].startswith("half ? a character")
    assert event["text"] == "two\nlines"
    assert broken["arguments"] == "?"
    assert (tmp_path / "log").stat().st_size < 5_000


async def test_a_full_file_becomes_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in range(100):
        journal = Journal(str(path), pytest.fail, max_size=2_000)
        journal.event(f"event {number}")
        journal.close()
    older = tmp_path / "log.1"
    texts = [line["text"] for line in (*lines_of(older), *lines_of(path))]
    assert texts == [f"event {number}" for number in range(100 - len(texts), 100)]
    assert older.stat().st_size <= 2_000
    assert sorted(os.listdir(tmp_path)) == ["log", "log.1"]


_WRITER = """
import sys
from portico.library.observe.log_file import append_bounded
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(count):
    line = b'{"from":"%s","number":%d}\\n' % (name.encode(), number)
    while True:
        try:
            append_bounded(path, [line], 20_000)
        except BlockingIOError:
            continue
        break
"""


def test_two_processes_that_rotate_at_once_lose_and_cut_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    count = 600  # two files hold them all
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name, str(count)])
        for name in ("one", "two")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    lines = [*lines_of(tmp_path / "log.1"), *lines_of(path)]
    for name in ("one", "two"):
        assert [line["number"] for line in lines if line["from"] == name] == list(range(count))


async def test_a_folder_that_cannot_be_written_is_told_once_and_used_again_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "FLUSH_INTERVAL_S", 0.01)
    monkeypatch.setattr(journals, "RETRY_DELAY_S", 0.01)
    said: list[str] = []
    path = tmp_path / "folder" / "log"
    journal = Journal(str(path), said.append)
    tries: list[Sequence[bytes]] = []

    def tried(path: str, lines: Sequence[bytes], max_size: int) -> int:
        tries.append(lines)
        return append_bounded(path, lines, max_size)

    monkeypatch.setattr(journals, "append_bounded", tried)
    note(journal, call({}))
    async with asyncio.timeout(20):
        await eventually(lambda: len(tries) >= 3)
    assert said == [f"cannot write the log {path}: No such file or directory; calls continue"]
    path.parent.mkdir()
    async with asyncio.timeout(20):
        await eventually(path.exists)
    journal.close()
    assert [line["kind"] for line in lines_of(path)] == ["call"]


async def test_a_full_disk_leaves_no_half_line_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    said: list[str] = []
    journal = Journal(str(path), said.append)
    journal.event("before")
    journal.close()
    write = os.write

    def full(handle: int, data: bytes) -> int:
        if len(data) > 10:
            return write(handle, data[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        note(journal, call({"a": 1}))
        journal.close()
    assert len(said) == 1
    assert "No space left on device" in said[0]
    assert [line["text"] for line in lines_of(path)] == ["before"]
    journal.close()
    assert [line["kind"] for line in lines_of(path)] == ["event", "call"]


def test_a_device_that_is_full_does_not_end_a_gateway(tmp_path: Path) -> None:
    """The real thing: every write to /dev/full fails."""
    said: list[str] = []

    async def use() -> None:
        journal = Journal("/dev/full", said.append)
        note(journal, call({}))
        journal.close()

    asyncio.run(use())
    assert len(said) == 1


async def test_a_process_that_holds_the_file_is_waited_for(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "log"
    journal = Journal(str(path), pytest.fail)
    journal.event("one")
    with path.open("ab") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert not journal.write()
    journal.close()
    until(lambda: [line["text"] for line in lines_of(path)] == ["one"], "the line is missing")
