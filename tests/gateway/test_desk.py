"""The gateway's own tools: what they say of servers that cannot be searched."""

from portico import Server
from portico.config.schema import Server as Entry
from tests.gateway.houses import Client, World, config, house


def shop(name: str) -> Server:
    server = Server(name, "1")

    @server.tool
    async def buy(what: str) -> str:
        """Buy something."""
        return what

    return server


async def test_a_server_that_cannot_be_asked_is_told_apart_from_one_that_is_still_to_come() -> None:
    there = World({"shop": shop("shop"), "late": shop("late")}, down={"gone"})
    async with house(there, config("shop", "late", "gone"), expose="search") as gateway:
        await gateway.refresh(["shop", "gone"])
        said = await Client(gateway.endpoint()).said("search_tools", query="buy")
    assert "(still to come: the tools of late)" in said
    assert "(not known: the tools of gone; gateway_status says why)" in said


async def test_a_server_that_is_switched_off_is_said_to_be() -> None:
    servers = {
        "shop": Entry(name="shop", command="shop"),
        "off": Entry(name="off", command="off", enabled=False),
    }
    there = World({"shop": shop("shop")})
    async with house(there, config(servers=servers), expose="search") as gateway:
        await gateway.refresh(["shop"])
        client = Client(gateway.endpoint())
        told = [
            await client.said("search_tools", query="buy", server="off"),
            await client.said("refresh_tools", server="off"),
            await client.said("describe_tool", name="off__buy"),
            await client.said("execute_tool", name="off__buy", arguments={}),
        ]
    assert set(told) == {"off is switched off in the config; the servers are shop (1 tool)"}


async def test_only_so_many_servers_are_named_to_who_missed_one() -> None:
    names = [f"shop-{number}" for number in range(300)]
    async with house(World(), config(*names), expose="search") as gateway:
        said = await Client(gateway.endpoint()).said("search_tools", query="x", server="shop")
    assert said.endswith("shop-49, 250 more, which gateway_status lists")


async def test_a_search_costs_a_model_little_however_many_servers_cannot_be_asked() -> None:
    names = [f"shop-{number}" for number in range(300)]
    async with house(World(down={*names}), config(*names), expose="search") as gateway:
        client = Client(gateway.endpoint())
        early = await client.said("search_tools", query="buy")
        await gateway.refresh(gateway.members)
        late = await client.said("search_tools", query="buy")
    assert max(len(early), len(late)) < 2_000
