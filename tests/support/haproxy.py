"""haproxy in front of several replicas."""

import asyncio
import contextlib
import csv
import io
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tests.support.backoff import until
from tests.support.shared import unavailable

WAIT_S = 60.0

# A session lives in one process, so its requests stick to the server that began it.
_CONFIG = """\
global
    stats socket {folder}/admin.sock level admin
defaults
    mode http
    timeout connect 5s
    timeout check 5s
    timeout client 60s
    timeout server 60s
frontend door
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    option httpchk GET /readyz
    stick-table type string len 64 size 10k expire 30m
    stick on req.hdr(mcp-session-id)
    stick store-response res.hdr(mcp-session-id)
"""


class Haproxy:
    """A running haproxy."""

    def __init__(self, folder: Path, port: int) -> None:
        self._socket = folder / "admin.sock"
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    async def becomes(self, server: str, state: str) -> None:
        """Wait until it takes a server for `UP` or `DOWN`."""

        async def is_so() -> bool:
            return (await self._states()).get(server, "").startswith(state)

        async with asyncio.timeout(WAIT_S):
            await until(is_so)

    async def _states(self) -> dict[str, str]:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        writer.write(b"show stat\n")
        text = (await reader.read()).decode().removeprefix("# ")
        writer.close()
        rows = csv.DictReader(io.StringIO(text))
        return {row["svname"]: row["status"] for row in rows if row["pxname"] == "replicas"}


@contextlib.asynccontextmanager
async def haproxy(
    folder: Path, port: int, replicas: Sequence[int], *, check_ms: int
) -> AsyncIterator[Haproxy]:
    """haproxy on a port, before replicas `r0`, `r1` ... on theirs; by default it checks each of
    them every 2 s, and believes the third bad answer."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        unavailable("haproxy is not installed")
    servers = [
        f"    server r{n} 127.0.0.1:{to} check inter {check_ms}ms\n"
        for n, to in enumerate(replicas)
    ]
    config = folder / "haproxy.cfg"
    config.write_text(_CONFIG.format(folder=folder, port=port) + "".join(servers))
    process = await asyncio.create_subprocess_exec(program, "-q", "-db", "-f", str(config))
    try:
        found = Haproxy(folder, port)
        async with asyncio.timeout(WAIT_S):
            while not (folder / "admin.sock").exists():
                assert process.returncode is None
                await asyncio.sleep(0.05)
        yield found
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
