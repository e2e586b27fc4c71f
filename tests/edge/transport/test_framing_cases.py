"""Odd framing on real sockets: at our own server, and through haproxy and nginx in front of it."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from portico import Server
from portico.core.http1.port import BodyReceiver, ResponseWriter, Scope
from portico.edge.transport.http_app import HttpApp
from portico.edge.transport.http_limits import HttpLimits
from tests.edge.transport.framing_cases import CASES, LAST, SMUGGLED, Case
from tests.support.haproxy import haproxy
from tests.support.nginx import nginx
from tests.support.running import free_port
from tests.support.web import WAIT_S, serving

LIMITS = HttpLimits(body_s=0.5, header_s=1)


class Recorded(HttpApp):
    """An app that keeps the path of every request that it serves."""

    paths: list[str]

    def respond(self, scope: Scope, writer: ResponseWriter) -> BodyReceiver | None:
        if scope["path"] != "/readyz":  # haproxy's own check
            self.paths.append(scope["path"])
        return super().respond(scope, writer)


@asynccontextmanager
async def recorded() -> AsyncIterator[tuple[Recorded, int]]:
    app = Recorded(Server("x").endpoint(()), limits=LIMITS)
    app.paths = []
    async with serving(app) as site:
        yield app, site.port


async def statuses(port: int, data: bytes, piece: int = 1_000_000) -> str:
    """Send these bytes, and return the statuses of all responses until the connection closes."""
    loop, answers = asyncio.get_running_loop(), bytearray()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setblocking(False)

        async def receive() -> None:
            with contextlib.suppress(ConnectionError):  # closed while we were still sending
                while more := await loop.sock_recv(client, 65536):
                    answers.extend(more)

        receiving = asyncio.create_task(receive())
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(data), piece):
                if receiving.done():
                    break
                await loop.sock_sendall(client, data[at : at + piece])
                await asyncio.sleep(0)
        await asyncio.wait_for(receiving, WAIT_S)
    return " ".join(found.decode() for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answers))


def expected(column: str) -> dict[str, str]:
    return {case.name: getattr(case, column) for case in CASES}


def test_the_cases_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 80
    assert sum(SMUGGLED in case.data for case in CASES) > 10


async def test_our_server_answers_each_case() -> None:
    async with recorded() as (app, port):
        found = {case.name: await statuses(port, case.data + LAST) for case in CASES}
        assert "/smuggled" not in app.paths
    assert found == expected("ours")


@pytest.mark.parametrize("piece", [1, 7])
async def test_a_case_that_arrives_in_pieces_is_answered_in_the_same_way(piece: int) -> None:
    small = {case.name: case for case in CASES if len(case.data) < 2_500}
    async with recorded() as (app, port):
        found = {
            name: (await statuses(port, case.data + LAST, piece)).removeprefix("100 ")
            for name, case in small.items()
        }
        assert "/smuggled" not in app.paths
    assert found == {name: case.ours for name, case in small.items()}


async def through(port: int, app: Recorded, case: Case) -> str:
    """Return what a proxy answers; no request may reach us that the proxy does not know of."""
    app.paths.clear()
    found = await statuses(port, case.data + LAST)
    if case.name != "HTTP/0.9":  # whose responses have no status
        assert len(app.paths) <= len(found.split()), case.name
    return found


@pytest.mark.slow
async def test_behind_haproxy_no_request_is_smuggled(tmp_path: Path) -> None:
    async with (
        recorded() as (app, to),
        haproxy(tmp_path, free_port(), [to], check_ms=3_600_000) as proxy,
    ):
        found = {case.name: await through(proxy.port, app, case) for case in CASES}
    assert found == expected("haproxy")


@pytest.mark.slow
async def test_behind_nginx_no_request_is_smuggled(tmp_path: Path) -> None:
    door = free_port()
    async with recorded() as (app, to), nginx(tmp_path, door, to):
        found = {case.name: await through(door, app, case) for case in CASES}
    assert found == expected("nginx")
