"""The log of `wrap`: a line for each call, with how it went and never with a value."""

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.context import Context
from portico.core.model.message import Meta, Request, Response
from portico.core.model.types import Handler
from portico.core.model.version import LATEST_LEGACY
from portico.library.observe import journal as journals
from portico.library.observe.call_redaction import shape
from portico.library.observe.journal import Journal, open_call_log
from tests.rigs.running import bad
from tests.support.backoff import until as eventually
from tests.support.running import WAIT_S
from tests.wrap.standing import Standing, until


def call(method: str = "tools/call", params: Any = None, **more: Any) -> Request:
    raw = json.dumps(params).encode() if params is not None else b""
    return Request(method=method, id=b"1", params=raw, version=LATEST_LEGACY, **more)


def door(
    path: Path, response: Response, report: Callable[[str], None] = pytest.fail
) -> tuple[Journal, Handler]:
    """A log, and behind it a handler that answers everything the same way."""

    async def handle(request: Request, context: Context) -> Response:
        return response

    log = open_call_log(str(path), report)
    return log, log.link("upstream")(handle)


async def logged(path: Path, request: Request, response: Response) -> list[dict[str, Any]]:
    log, handle = door(path, response)
    assert await handle(request, Context()) is response
    log.close()
    return lines_of(path)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


OK = Response(id=b"1", result=b'{"content":[]}')


async def test_a_call_is_a_line_that_says_who_what_and_how_but_no_value(tmp_path: Path) -> None:
    arguments = {"a": "secret", "b": [101, 102, 103], "c": {"d": None, "e": 3.14, "f": True}}
    meta = Meta(client_info=b'{"name":"some client","version":"1"}')
    request = call(params={"name": "add", "arguments": arguments}, name="add", meta=meta)
    (line,) = await logged(tmp_path / "log", request, OK)
    assert line.pop("time").startswith("20")
    assert line.pop("ms") >= 0
    assert line == {
        "client": "some client",
        "server": "upstream",
        "method": "tools/call",
        "name": "add",
        "outcome": "ok",
        "arguments": "{a:str,b:int[3],c:{d:null,e:float,f:bool}}",
    }
    text = (tmp_path / "log").read_text()
    assert not any(value in text for value in ("secret", "101", "3.14"))


@pytest.mark.parametrize(
    ("request_", "response", "outcome", "name"),
    [
        (call(name="t"), Response(id=b"1", result=b'{"isError":true}'), "tool-error", "t"),
        (call(name="t"), Response(id=b"1", result=b'{"isError":false}'), "ok", "t"),
        (call(name="t"), Response(id=b"1", result=b'{"text":"isError"}'), "ok", "t"),
        (call(name="t"), Response(id=b"1", error=b"{}", code=-32602), "error -32602", "t"),
        (call("prompts/get", name="p"), OK, "ok", "p"),
        (call("resources/read", uri="db://t?key=s3cret"), OK, "ok", "db://t?..."),
        (call("resources/read", uri="db://me:s3@cret@t/x"), OK, "ok", "db://***@t/x"),
        (call("resources/read", uri="db://t/x#s3cret"), OK, "ok", "db://t/x#..."),
        (
            call("resources/read", uri="portico://a/db%3A%2F%2Fme%3As3cret%40t%2Fx%3Fkey"),
            *(OK, "ok", "portico://a/db%3A%2F%2F***%40t%2Fx%3F..."),
        ),
        (call("completion/complete"), OK, "ok", ""),
    ],
)
async def test_the_outcome_of_each_sort_of_call_is_told(
    request_: Request, response: Response, outcome: str, name: str, tmp_path: Path
) -> None:
    (line,) = await logged(tmp_path / "log", request_, response)
    assert (line["outcome"], line["name"]) == (outcome, name)


@pytest.mark.parametrize(
    "method", ["tools/list", "initialize", "ping", "no/such", "resources/list"]
)
async def test_what_is_no_call_leaves_no_line(method: str, tmp_path: Path) -> None:
    assert await logged(tmp_path / "log", call(method), OK) == []


async def test_a_call_that_is_cancelled_is_told_too(tmp_path: Path) -> None:
    async def never(request: Request, context: Context) -> Response:
        await asyncio.Event().wait()
        return OK

    log = open_call_log(str(tmp_path / "log"), pytest.fail)
    task = asyncio.ensure_future(log.link("upstream")(never)(call(), Context()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    log.close()
    assert json.loads((tmp_path / "log").read_text())["outcome"] == "cancelled"


async def test_the_file_is_the_users_alone_and_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert len(await logged(path, call(), OK)) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(await logged(path, call(), OK)) == 2


async def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log, handle = door(path, OK)
    await handle(call(name="one"), Context())
    log.close()
    path.rename(tmp_path / "old")
    await handle(call(name="two"), Context())
    log.close()
    assert [line["name"] for line in lines_of(path)] == ["two"]
    assert [line["name"] for line in lines_of(tmp_path / "old")] == ["one"]


async def test_a_line_appears_a_moment_later_without_a_close(tmp_path: Path) -> None:
    _, handle = door(tmp_path / "log", OK)
    await handle(call(), Context())
    async with asyncio.timeout(WAIT_S):
        await eventually(lambda: len(lines_of(tmp_path / "log")) == 1)


async def test_the_file_is_never_rotated(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, 2 * journals.MAX_SIZE)
    log, handle = door(path, OK)
    await handle(call(), Context())
    log.close()
    assert os.listdir(tmp_path) == ["log"]
    assert path.stat().st_size > 2 * journals.MAX_SIZE


async def test_a_log_that_cannot_be_written_is_reported_once_and_hurts_no_call(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    folder = tmp_path / "folder"
    folder.mkdir()
    log, handle = door(folder / "log", OK, said.append)
    (folder / "log").unlink()
    folder.rmdir()
    for _ in range(3):
        assert await handle(call(), Context()) is OK
        log.close()
    why = "No such file or directory"
    assert said == [f"cannot write the log {folder / 'log'}: {why}; calls continue"]
    folder.mkdir()
    await handle(call(), Context())
    log.close()
    assert len(lines_of(folder / "log")) == 4


async def test_a_pipe_that_nobody_reads_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    said: list[str] = []
    log, handle = door(tmp_path / "pipe", OK, said.append)
    for number in range(2000):
        assert await handle(call(name=f"{number}"), Context()) is OK
    log.close()
    assert len(said) == 1
    names: list[str] = []
    while len(names) < 2000:  # a reader that comes late gets all of it, and each line once
        lines = os.read(reader, 1 << 20).splitlines()
        names += [json.loads(line)["name"] for line in lines]
        log.close()
    assert names == [f"{number}" for number in range(2000)]
    os.close(reader)


async def test_a_name_that_would_break_the_line_does_not(tmp_path: Path) -> None:
    (line,) = await logged(tmp_path / "log", call(name='a\n"b\x1b[31m' + "x" * 1000), OK)
    assert line["name"].startswith('a\n"b')
    assert len(line["name"]) == 200


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "{}"),
        ([], "any[0]"),
        ([1, "a"], "any[2]"),
        ([{"a": 1}, {"a": 2}], "{a:int}[2]"),
        ({"my-key": 1, "person@example.com": 2}, "{my-key:int,?:int}"),
        ({"a": {"b": {"c": {"d": 1}}}}, "{a:{b:{c:object[1]}}}"),
        ("text", "str"),
    ],
)
def test_the_shape_of_a_value_tells_nothing_of_it(value: Any, told: str) -> None:
    assert shape(value) == told


def test_the_shape_of_something_huge_is_short() -> None:
    wide = {f"key{number}": list(range(1000)) for number in range(1000)}
    assert len(shape({"a": wide, "b": wide})) < 1000


def test_wrap_logs_the_calls_of_its_client(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Standing(tmp_path / "home", "--log", str(log), "--", *bad("stdio", "plain")) as wrap:
        wrap.initialize()
        wrap.tools()
        wrap.said("echo", text="s3cret")
        wrap.ask("tools/call", {"name": "fail"})
        wrap.ask("resources/read", {"uri": "test://note"})
        id = wrap.start("tools/call", {"name": "slow", "arguments": {"ms": 60_000}})
        wrap.said("pid")  # by then the slow one is under way
        notice = {"method": "notifications/cancelled", "params": {"requestId": id}}
        wrap.send({"jsonrpc": "2.0", **notice})
        until(lambda: log.read_text().count("\n") == 5, "a line is missing")
    lines = lines_of(log)
    assert [(line["name"], line["outcome"], line["arguments"]) for line in lines] == [
        ("echo", "ok", "{text:str}"),
        ("fail", "error 1234", ""),
        ("test://note", "ok", ""),
        ("pid", "ok", "{}"),
        ("slow", "cancelled", "{ms:int}"),
    ]
    assert {line["client"] for line in lines} == {"tests"}
    assert "s3cret" not in log.read_text()


def test_a_log_that_cannot_be_opened_is_said_at_once(tmp_path: Path) -> None:
    words = ("--log", "/no/such/folder/log", "--", *bad("stdio", "plain"))
    with Standing(tmp_path / "home", *words) as wrap:
        assert wrap.process.wait(20) == 1
        assert wrap.stderr() == (
            "portico: /no/such/folder/log cannot be written: No such file or directory\n"
        )
