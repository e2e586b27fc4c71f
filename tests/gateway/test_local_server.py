"""A server of this process as a member: called as functions, changed from anywhere."""

import asyncio

import pytest

from portico import Server
from portico.definitions.schema import Schema, SchemaViolation
from portico.gateway.local_server import LocalEntry, local_entries
from portico.model.errors import PorticoError
from tests.gateway.registries import Client, World, config, registry
from tests.support.backoff import until


def notes() -> Server:
    server = Server("notes", "1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def entries(server: Server) -> dict[str, LocalEntry]:
    return local_entries({"notes": server}, config())


async def test_a_change_in_another_thread_is_told() -> None:
    server = notes()
    async with registry(World(), config(), expose="all", local=entries(server)) as gateway:
        client = Client(gateway.endpoint())
        await client.hello()
        assert await client.names() == ["notes__add"]
        more = {"name": "more", "inputSchema": {"type": "object"}}
        await asyncio.to_thread(server.add_tool, more, lambda arguments: "more")
        await until(lambda: bool(client.heard))
        assert client.heard[0]["method"] == "notifications/tools/list_changed"
        assert await client.names() == ["notes__add", "notes__more"]


@pytest.mark.parametrize("expose", ["search", "all"])
async def test_its_arguments_are_checked_once(expose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    plain = Schema.problems

    def counted(self: Schema, instance: object, size: int | None = None) -> list[SchemaViolation]:
        checked.append(instance)
        return plain(self, instance, size)

    monkeypatch.setattr(Schema, "problems", counted)
    async with registry(World(), config(), expose=expose, local=entries(notes())) as gateway:
        client = Client(gateway.endpoint())
        given = {"a": 1, "b": 2}
        if expose == "search":
            assert await client.said("execute_tool", name="notes__add", arguments=given) == "3"
        else:
            assert await client.said("notes__add", **given) == "3"
    assert checked.count(given) == 1


async def test_it_stays_when_the_config_changes() -> None:
    async with registry(World(), config(), expose="all", local=entries(notes())) as gateway:
        await gateway.apply(config())
        assert await Client(gateway.endpoint()).said("notes__add", a=1, b=2) == "3"


def test_a_name_that_cannot_be_part_of_a_tools_name_is_refused() -> None:
    with pytest.raises(PorticoError, match="invalid member name 'a b'; use 'a-b'"):
        local_entries({"a b": notes()}, config())
