"""Large responses pass sandboxed middleware, up to the longest message of a server."""

from pathlib import Path

import pytest

from portico import McpError, Server
from tests.library.wasm import building
from tests.library.wasm.test_middleware import client_behind, shop, text

MB = 1024 * 1024


def noop() -> Path:
    return building.javascript("noop.js", building.WIT / "own", "noop")


@pytest.mark.parametrize("size", [5 * MB, 15 * MB])
async def test_what_is_larger_than_a_request_of_a_client_passes_it(
    size: int, tmp_path: Path
) -> None:
    server = Server("large")

    @server.tool
    async def large() -> str:
        """Return much."""
        return "x" * size

    async with client_behind(server, tmp_path, path=noop()) as client:
        assert len(await text(client, "large")) == size


async def test_a_response_that_is_too_large_for_it_fails_its_request_only(tmp_path: Path) -> None:
    server, _ = shop()

    @server.tool
    async def large() -> str:
        """Return too much."""
        return "x" * 17 * MB

    async with client_behind(server, tmp_path, path=noop()) as client:
        with pytest.raises(McpError, match="is the limit of sandboxed middleware"):
            await client.call_tool("large", {})
        assert await text(client, "echo", text="hi") == "hi"
