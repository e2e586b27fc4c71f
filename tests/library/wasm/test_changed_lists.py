"""Lists of a component that change while they are read."""

import asyncio
from types import SimpleNamespace
from typing import Any

from portico import Server
from portico.core.config.component_grants import ComponentGrants, GuestLimits
from portico.library.wasm.handler_protocol import CHANGED
from portico.library.wasm.provider import ComponentProvider


class Growing:
    """Calls of a component whose list grows by a call, and again while it is read."""

    def __init__(self) -> None:
        self.names = ["grow"]
        self.client: Any = None

    async def answer(self, capability: object, method: str, *given: Any) -> dict[str, Any]:
        if method == "tools/call":
            self.client = given[2]
            await self._grow("first")
            return {"content": []}
        listed = [{"name": name, "inputSchema": {"type": "object"}} for name in self.names]
        if self.client is not None and "second" not in self.names:
            await self._grow("second")
        return {"tools": listed}

    async def _grow(self, name: str) -> None:
        self.names.append(name)
        await self.client.tell(CHANGED, {"kind": "tools"})


async def test_a_change_while_lists_are_read_is_not_lost() -> None:
    capability = SimpleNamespace(methods=frozenset({"tools/list", "tools/call"}))
    loaded: Any = SimpleNamespace(
        found=SimpleNamespace(capabilities=[capability], imports=()),
        settings=SimpleNamespace(limits=GuestLimits(), granted=ComponentGrants()),
    )
    calls: Any = Growing()
    provider = ComponentProvider("guest", frozenset({"tools"}), lambda _: None)
    await provider.load(loaded, calls)
    async with (
        Server.compose("guest", provider).test_client() as client,
        client.changes() as changes,
        asyncio.timeout(30),
    ):
        await client.call_tool("grow", {})
        while [tool.name for tool in await client.list_tools()] != ["grow", "first", "second"]:
            await anext(changes)
