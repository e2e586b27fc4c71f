"""What drives contenders over HTTP is no worse a client than one of them may expect."""

import asyncio
import os
import re
import shutil
from pathlib import Path

import bench
from tests.support.shared import unavailable

_SCRIPT = Path(bench.__file__).with_name("wrk.lua")
_LATER = 300


class _Held:
    """A server that answers the first request after so many others, and none but by its id."""

    def __init__(self) -> None:
        self.waiting: set[bytes] = set()
        self.used_twice: list[bytes] = []
        self.answered = 0
        self._enough = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._answer(await _body(reader), writer)
        except asyncio.IncompleteReadError:
            pass  # the client leaves when its time is over
        finally:
            writer.close()

    async def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        found = re.search(rb'"id":(\d+)', body)
        assert found is not None
        id, is_first = found[1], not self.waiting and not self.answered
        if id in self.waiting:
            self.used_twice.append(id)
        self.waiting.add(id)
        if is_first:
            await self._enough.wait()
        self.waiting.discard(id)
        self.answered += 1
        if self.answered == _LATER:
            self._enough.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    assert length is not None
    return await reader.readexactly(int(length[1]))


def test_wrk_uses_no_id_again_that_waits_while_hundreds_of_others_are_answered() -> None:
    if shutil.which("wrk") is None:
        unavailable("wrk is not there")

    async def drive() -> _Held:
        held = _Held()
        async with await asyncio.start_server(held.serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            environment = {
                **os.environ,
                "BENCH_BODY": '{"jsonrpc":"2.0","id":100,"method":"ping"}',
                "BENCH_HEADERS": "Content-Type: application/json",
            }
            command = ["wrk", "-t1", "-c4", "-d1s", "-s", str(_SCRIPT)]
            wrk = await asyncio.create_subprocess_exec(
                *command,
                f"http://127.0.0.1:{port}/mcp",
                env=environment,
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await wrk.communicate()
            assert b'"errors":{"connect":0,"read":0,"write":0,"status":0,"timeout":0}' in output
        return held

    held = asyncio.run(drive())

    assert held.answered > _LATER
    assert held.used_twice == []
