"""How often, and how long, the arguments of a call are checked on their way."""

import asyncio
from typing import Any

import msgspec
import pytest

from portico import Server
from portico.core.definitions.schema import Schema, SchemaViolation
from portico.edge.transport.pipes import StdioServer
from tests.gateway.registries import Client, World, config, registry


def shop() -> Server:
    server = Server("shop", "1")

    @server.tool
    async def buy(what: str) -> str:
        """Buy something."""
        return what

    return server


async def asked(endpoint: Any, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of a whole stdio conversation."""
    answers: list[dict[str, Any]] = []
    wanted = sum("id" in message for message in messages)
    done = asyncio.Event()

    def write(parts: tuple[bytes, ...]) -> None:
        answers.append(msgspec.json.decode(b"".join(parts)))
        if len(answers) == wanted:
            done.set()

    stdio = StdioServer(endpoint, write)
    for message in messages:
        stdio.received(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")
    await done.wait()
    return answers


HELLO = {
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def execute(**arguments: Any) -> dict[str, Any]:
    params = {"name": "execute_tool", "arguments": {"name": "shop__buy", "arguments": arguments}}
    return {"id": 2, "method": "tools/call", "params": params}


@pytest.mark.parametrize(("arguments", "fails"), [({"what": 5}, True), ({"what": "tea"}, False)])
async def test_the_arguments_of_a_call_are_checked_once(
    arguments: dict[str, Any], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []
    plain = Schema.problems

    def counted(self: Schema, instance: Any, size: int | None = None) -> list[SchemaViolation]:
        if self._foreign:
            checked.append(instance)
        return plain(self, instance, size)

    monkeypatch.setattr(Schema, "problems", counted)
    async with registry(World({"shop": shop()}), config("shop"), expose="search") as gateway:
        await gateway.refresh(["shop"])
        answers = await asked(gateway.endpoint(), HELLO, execute(**arguments))

    assert bool(answers[1]["result"].get("isError")) is fails
    assert checked == [arguments]


async def test_a_call_that_would_take_long_to_check_is_left_to_its_server() -> None:
    never = {"allOf": [{"contains": {"const": -1 - n}} for n in range(200)]}
    schema = {"type": "object", "properties": {"n": never}}
    server = Server("shop", "1")
    server.add_tool({"name": "buy", "inputSchema": schema}, lambda n: "bought")

    async with registry(World({"shop": server}), config("shop"), expose="search") as gateway:
        await gateway.refresh(["shop"])
        client = Client(gateway.endpoint())
        many = await client.said("execute_tool", name="shop__buy", arguments={"n": [*range(2_000)]})
        few = await client.said("execute_tool", name="shop__buy", arguments={"n": [1]})

    assert many.startswith("buy: n: has 0 items like")  # by the name that its server knows
    assert few.startswith("shop__buy: n: has 0 items like")
