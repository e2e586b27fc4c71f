"""Static answers cost a join: what is handed to the transport is the catalog's own bytes object."""

from typing import Any

import pytest

from portico import Context, Server, Version
from portico.core.model.methods import LISTS
from tests.support.running import initialize_params, modern_meta

LEGACY = [version for version in Version if not version.modern]


@pytest.fixture
def server() -> Server:
    server = Server("static", "1", page_size=2)
    for name in "abc":
        server.add_tool({"name": name, "inputSchema": {"type": "object"}}, lambda arguments: "")
        server.resource(f"note://{name}", name=name)(lambda: "")
        server.resource(f"note-{name}://{{id}}", name=name)(lambda id: id)
        server.prompt(name=name)(lambda: "")
    return server


def request(method: str, version: Version, id: Any = 1, **params: Any) -> dict[str, Any]:
    if version.modern:
        params["_meta"] = modern_meta(version.text)
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def parts_of(server: Server, message: dict[str, Any], version: Version) -> tuple[bytes, ...]:
    response = await server.handle(message, Context(version=version))
    assert not response.error, response.decode()
    return response.parts


def contains(parts: tuple[bytes, ...], ready: bytes | None) -> bool:
    """True if the very same object is one of the parts."""
    return any(part is ready for part in parts)


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("method", LISTS)
async def test_a_list_is_the_catalogs_own_bytes_each_time(
    server: Server, method: str, version: Version
) -> None:
    first = await parts_of(server, request(method, version), version)
    again = await parts_of(server, request(method, version, id="other"), version)
    ready = server.catalog().page(LISTS[method], version, "")
    assert contains(first, ready)
    assert contains(again, ready)


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("method", LISTS)
async def test_so_is_every_later_page(server: Server, method: str, version: Version) -> None:
    answer = await server.handle(request(method, version), Context(version=version))
    cursor = answer.decode()["result"]["nextCursor"]
    first = await parts_of(server, request(method, version, cursor=cursor), version)
    again = await parts_of(server, request(method, version, id=2, cursor=cursor), version)
    ready = server.catalog().page(LISTS[method], version, cursor)
    assert contains(first, ready)
    assert contains(again, ready)


@pytest.mark.parametrize("version", LEGACY)
async def test_so_is_the_handshake(server: Server, version: Version) -> None:
    for id in (1, "other"):
        message = request("initialize", version, id, **initialize_params(version.text))
        parts = await parts_of(server, message, version)
        assert contains(parts, server.catalog().handshake(version))


async def test_so_is_the_discovery(server: Server) -> None:
    version = Version.V2026_07_28
    for id in (1, "other"):
        parts = await parts_of(server, request("server/discover", version, id), version)
        assert contains(parts, server.catalog().discovery(version))


async def test_the_raw_id_is_handed_on_as_it_came(server: Server) -> None:
    body = b'{"jsonrpc":"2.0","id": "\\u0061/\\/" ,"method":"tools/list"}'
    response = await server.handle(body, Context(version=Version.V2025_11_25))
    assert b'"\\u0061/\\/"' in response.parts


async def test_a_change_makes_new_bytes_and_only_then(server: Server) -> None:
    version = Version.V2025_11_25
    before = server.catalog()
    old = before.page("tools", version, "")
    assert server.catalog() is before
    server.remove_tool("c")
    parts = await parts_of(server, request("tools/list", version), version)
    assert server.catalog().number > before.number
    assert not contains(parts, old)
    assert contains(parts, server.catalog().page("tools", version, ""))
