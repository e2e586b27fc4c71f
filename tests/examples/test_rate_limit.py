"""The example with a rate limit: in memory with a clock of its own, and in real processes."""

import json
from pathlib import Path
from typing import Literal

import pytest

from examples.rate_limit import TOO_MANY_CALLS, limited
from portico import McpError, Server, hooks
from tests.examples.served import EACH_ERA, EACH_WAY, served


def shop() -> Server:
    server = Server("shop")

    @server.tool
    async def search_goods(words: str = "") -> str:
        """Find goods."""
        return "nothing"

    @server.tool
    async def buy() -> str:
        """Buy goods."""
        return "bought"

    return server


@EACH_ERA
async def test_a_call_over_the_limit_is_told_how_long_to_wait(
    era: Literal["modern", "legacy"],
) -> None:
    now = [0.0]
    link = hooks(on_call=limited({"search_*": 2, "b*": 1}, clock=lambda: now[0]))
    async with shop().test_client(era=era, links=[link]) as client:
        for at in (0.0, 20.5):
            now[0] = at
            assert (await client.call_tool("search_goods")).text == "nothing"
        with pytest.raises(McpError, match=r"search_goods: more than 2 calls .* in 40 s") as error:
            await client.call_tool("search_goods")
        assert (error.value.code, error.value.data) == (TOO_MANY_CALLS, {"retryAfterS": 40})
        assert (await client.call_tool("buy")).text == "bought"
        now[0] = 60.0
        assert (await client.call_tool("search_goods")).text == "nothing"
        with pytest.raises(McpError, match="in 21 s"):
            await client.call_tool("search_goods")
        assert [tool.name for tool in await client.list_tools()] == ["search_goods", "buy"]


async def test_a_tool_without_a_limit_is_not_limited() -> None:
    link = hooks(on_call=limited({"search_*": 0}))
    async with shop().test_client(links=[link]) as client:
        for _ in range(100):
            assert (await client.call_tool("buy")).text == "bought"
        with pytest.raises(McpError, match="more than 0 calls"):
            await client.call_tool("search_goods")


@pytest.mark.slow
@pytest.mark.xdist_group("examples")
@EACH_WAY
def test_of_many_calls_at_once_exactly_as_many_as_allowed_are_made(
    way: str, tmp_path: Path
) -> None:
    with served(way, tmp_path, "rate_limit") as shop:
        for era, tool in (("legacy", "echo"), ("modern", "get-sum")):
            with shop.client(era) as client:
                ids = [client.start(shop.name(tool), message="x", a=1, b=2) for _ in range(70)]
                answers = [json.loads(client.answer(id)) for id in ids]
            errors = [answer["error"] for answer in answers if "error" in answer]
            assert len(errors) == 10
            assert {error["code"] for error in errors} == {TOO_MANY_CALLS}
            start = f"{shop.name(tool)}: more than 60 calls in a minute; try again in "
            assert all(error["message"].startswith(start) for error in errors)
