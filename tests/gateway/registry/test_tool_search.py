"""The tools of all servers are searched, also after an attempt to index them has failed."""

from collections.abc import Iterator
from typing import Any

import pytest

from portico import Server
from portico.gateway.registry import tool_search
from portico.gateway.search.searcher import Searcher
from tests.gateway.registries import Client, World, config, registry


def shop() -> Server:
    """A server with one tool."""
    server = Server("shop", "1")

    @server.tool
    async def find_book() -> str:
        """Find a book."""
        return "a book"

    return server


def quiet() -> Searcher:
    return Searcher(report=lambda _: None)


async def test_a_search_after_a_failed_one_indexes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = tool_search.searched_tools, [ValueError("half a catalog")]

    def searched(*given: Any) -> Iterator[dict[str, Any]]:
        if failures:
            raise failures.pop()
        return real(*given)

    monkeypatch.setattr(tool_search, "searched_tools", searched)
    settings = config("shop")
    world = World({"shop": shop()})
    async with registry(world, settings, expose="search", searcher=quiet) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        assert "half a catalog" in await client.said("search_tools", query="book")
        assert "shop__find_book" in await client.said("search_tools", query="book")
