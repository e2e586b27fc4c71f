"""The era of a server is detected as the spec defines, whatever it answers to the probe."""

import asyncio
from typing import Any

import pytest

from portico.core.model.errors import TargetError
from portico.core.model.version import Version
from portico.edge.client.client import Client
from portico.edge.client.connect import connect
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.wires.wire import Failure
from tests.upstream.connections.fakes import (
    LEGACY,
    MODERN,
    Fake,
    FakeWire,
    Message,
    error,
    legacy,
    modern,
    result,
)

JSON_ERROR = b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"not like this"}}'
QUICK = HandshakeLimits(probe_s=0.02, init_s=0.5)


def http(status: int, body: bytes = b"") -> Failure:
    return Failure(
        server="fake", why=f"answered HTTP {status}", kind="http", status=status, body=body
    )


async def connected(*wires: FakeWire, **options: Any) -> Client:
    return await connect(Fake(list(wires)), limits=QUICK, **options)


async def test_a_modern_server_is_asked_once_and_named() -> None:
    wire = FakeWire(lambda m: modern(m, tools={}))
    client = await connected(wire)
    assert wire.methods() == ["server/discover"]
    assert client.server.version is Version.V2026_07_28
    assert client.server.info == {"name": "new", "version": "2"}
    assert client.server.capabilities == {"tools": {}}
    assert wire.settled is Version.V2026_07_28
    meta = wire.sent[0]["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "portico"


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32000, -32603, 0])
async def test_any_error_that_is_not_modern_means_legacy(code: int) -> None:
    def script(m: Message) -> list[Message]:
        return [error(m, code)] if m["method"] == "server/discover" else legacy(m)

    wire = FakeWire(script)
    client = await connected(wire)
    assert wire.methods() == ["server/discover", "initialize", "notifications/initialized"]
    assert client.server.version is Version.V2025_11_25
    assert client.server.info == {"name": "old", "version": "1"}


@pytest.mark.parametrize("answer", [{}, {"supportedVersions": 5}, {"tools": []}])
async def test_a_result_that_is_no_discovery_means_legacy(answer: Any) -> None:
    def script(m: Message) -> list[Message]:
        return [result(m, answer)] if m["method"] == "server/discover" else legacy(m)

    assert not (await connected(FakeWire(script))).modern


async def test_a_discovery_of_legacy_versions_only_means_legacy() -> None:
    wire = FakeWire(lambda m: legacy(m) if m["method"] == "initialize" else modern(m, (LEGACY,)))
    assert not (await connected(wire)).modern


async def test_an_older_version_is_taken_as_agreed() -> None:
    client = await connected(FakeWire(lambda m: legacy(m, "2024-11-05")))
    assert client.server.version is Version.V2024_11_05


@pytest.mark.parametrize("version", ["1999-01-01", MODERN])
async def test_a_version_we_do_not_speak_ends_it(version: str) -> None:
    wire = FakeWire(lambda m: legacy(m, version))
    with pytest.raises(TargetError, match="which Portico does not support"):
        await connected(wire)
    assert wire.closed


async def test_an_unsupported_version_is_asked_again_with_one_of_those_offered() -> None:
    refused: list[Message] = []

    def script(m: Message) -> list[Message]:
        if not refused:
            refused.append(m)
            return [error(m, -32022, data={"supported": [MODERN], "requested": "x"})]
        return modern(m)

    wire = FakeWire(script)
    assert (await connected(wire)).modern
    assert wire.methods() == ["server/discover"] * 2


async def test_a_modern_server_with_no_version_of_ours_is_not_greeted_the_old_way() -> None:
    data = {"supported": ["2030-01-01"], "requested": MODERN}
    wire = FakeWire(lambda m: [error(m, -32022, data=data)])
    with pytest.raises(TargetError, match="supports only 2030-01-01; Portico supports 2024-11-05"):
        await connected(wire)
    assert "initialize" not in wire.methods()


async def test_a_server_that_names_legacy_versions_is_greeted_the_old_way() -> None:
    def script(m: Message) -> list[Message]:
        if m["method"] == "server/discover":
            return [error(m, -32022, data={"supported": [LEGACY]})]
        return legacy(m)

    assert not (await connected(FakeWire(script))).modern


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_another_modern_error_is_not_taken_for_legacy(code: int) -> None:
    wire = FakeWire(lambda m: [error(m, code, "not so")])
    with pytest.raises(TargetError, match=r"refused the handshake: not so"):
        await connected(wire)
    assert wire.methods() == ["server/discover"]


async def test_a_silent_server_is_also_greeted_the_legacy_way() -> None:
    wire = FakeWire(lambda m: [] if m["method"] == "server/discover" else legacy(m))
    assert not (await connected(wire)).modern


async def test_a_slow_modern_server_is_modern_although_it_was_greeted_both_ways() -> None:
    requests: list[Message] = []

    def script(m: Message) -> list[Message]:
        requests.append(m)
        if m["method"] == "initialize":  # as the SDK does once a connection is modern
            return [error(m, -32022, data={"supported": [MODERN]}), *modern(requests[0])]
        return []

    client = await connected(FakeWire(script))
    assert client.modern


async def test_a_server_silent_to_everything_fails_in_time() -> None:
    wire = FakeWire(lambda _: None)
    with pytest.raises(TargetError, match="did not answer initialize within"):
        await connected(wire)
    assert wire.closed


async def test_a_server_that_dies_of_the_probe_is_started_again() -> None:
    gone = Failure(server="fake", why="exited with code 1", kind="exited", exit_code=1)
    first = FakeWire(lambda _: first.lose(gone))
    second = FakeWire(legacy)
    client = await connected(first, second)
    assert first.closed
    assert not client.modern
    assert second.methods() == ["initialize", "notifications/initialized"]


@pytest.mark.parametrize("status", [400, 404, 405, 406, 500, 501])
async def test_an_http_error_without_a_modern_body_means_legacy(status: int) -> None:
    def script(m: Message) -> list[Message] | None:
        if m["method"] == "server/discover":
            wire.fail(m["id"], http(status, b"<h1>Bad Request</h1>"))
            return None
        return legacy(m)

    wire = FakeWire(script, has_headers=True)
    assert not (await connected(wire)).modern


async def test_an_http_error_with_a_modern_body_means_modern() -> None:
    body = b'{"jsonrpc":"2.0","error":{"code":-32020,"message":"header mismatch"}}'
    wire = FakeWire(lambda m: wire.fail(m["id"], http(400, body)), has_headers=True)
    with pytest.raises(TargetError, match="header mismatch"):
        await connected(wire)
    assert wire.methods() == ["server/discover"]


@pytest.mark.parametrize("body", [b"", JSON_ERROR])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_closed_door_says_nothing_of_the_era(status: int, body: bytes) -> None:
    wire = FakeWire(lambda m: wire.fail(m["id"], http(status, body)), has_headers=True)
    with pytest.raises(TargetError, match=f"HTTP {status}"):
        await connected(wire)
    assert wire.methods() == ["server/discover"]


@pytest.mark.parametrize("body", [b"", b"<h1>no</h1>", JSON_ERROR])
@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_url_that_understands_no_post_is_tried_by_the_old_transport(
    status: int, body: bytes
) -> None:
    wire = FakeWire(lambda m: wire.fail(m["id"], http(status, body)), has_headers=True)
    old = FakeWire(legacy)
    client = await connect(Fake([wire], old), limits=QUICK)
    assert wire.methods() == ["server/discover", "initialize"]
    assert wire.closed
    assert old.methods() == ["initialize", "notifications/initialized"]
    assert not client.modern


async def test_a_slow_url_that_understands_no_post_is_tried_by_the_old_transport() -> None:
    probes: list[int] = []

    def script(m: Message) -> list[Message]:
        if m["method"] == "server/discover":
            probes.append(m["id"])  # answered only once the handshake runs beside it
            return []
        for id in (*probes, m["id"]):
            wire.fail(id, http(404))
        probes.clear()
        return []

    wire, old = FakeWire(script, has_headers=True), FakeWire(legacy)
    client = await connect(Fake([wire], old), limits=QUICK)
    assert wire.methods()[:2] == ["server/discover", "initialize"]
    assert old.methods() == ["initialize", "notifications/initialized"]
    assert not client.modern


async def test_probe_headers_repeat_the_body() -> None:
    wire = FakeWire(modern, has_headers=True)
    await connected(wire)
    assert wire.headers[0] == {"mcp-protocol-version": MODERN, "mcp-method": "server/discover"}


async def test_told_the_era_nothing_is_probed() -> None:
    wire = FakeWire(legacy)
    await connected(wire, era="legacy")
    assert wire.methods() == ["initialize", "notifications/initialized"]
    with pytest.raises(TargetError, match="is not modern: it supports only 2025-11-25"):
        await connected(FakeWire(lambda m: modern(m, (LEGACY,))), era="modern")


async def test_giving_up_while_connecting_closes_the_wire() -> None:
    wire = FakeWire(lambda _: None)
    opening = asyncio.create_task(connected(wire))
    await wire.until("server/discover")
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert wire.closed
