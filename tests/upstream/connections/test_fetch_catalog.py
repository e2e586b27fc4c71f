"""An upstream whose lists are fetched again."""

from collections.abc import Mapping
from typing import Any

from portico.core.model.errors import McpError
from portico.core.model.offer import Offer
from portico.core.model.version import Version
from portico.core.protocol.codec import encode
from portico.upstream.connections.fetch_catalog import fetch_catalog
from portico.upstream.connections.handshake import Introduction

SERVER = Introduction(Version.V2025_11_25, {}, {"tools": {}, "prompts": {}})


async def fetched(before: Offer | None = None, **lists: list[str]) -> Offer:
    """Fetch the offer of a server with these lists; it refuses all others."""

    async def ask(method: str, params: Mapping[str, Any]) -> bytes:
        kind = method.partition("/")[0]
        if kind not in lists:
            raise McpError("not now")
        return encode({kind: [{"name": name} for name in lists[kind]], "nextCursor": None})

    return await fetch_catalog(ask, "server", SERVER, now=1.0, before=before)


async def test_a_list_that_is_still_the_same_is_not_kept_twice() -> None:
    before = await fetched(tools=["a", "b"], prompts=["p"])
    after = await fetched(before, tools=["a", "b"], prompts=["q"])

    assert after.lists["tools"] is before.lists["tools"]
    assert after.lists["prompts"].keys == ("q",)


async def test_a_list_that_cannot_be_had_stays_as_it_was() -> None:
    before = await fetched(tools=["a"], prompts=["p"])
    after = await fetched(before, tools=["b"])

    assert after.lists["tools"].keys == ("b",)
    assert after.lists["prompts"] is before.lists["prompts"]
    assert "prompts" not in (await fetched(tools=["b"])).lists
