"""The user of a client of the official SDK, who answers its questions."""

from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext


class Person:
    """Answers every kind of question, and records the questions."""

    def __init__(self, action: str = "accept") -> None:
        self.asked: list[Any] = []
        self._action = action

    async def elicited(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        self.asked.append(params)
        form = isinstance(params, types.ElicitRequestFormParams)
        content: dict[str, Any] | None = {"name": "Ada"} if form else None
        if self._action != "accept":
            content = None
        return types.ElicitResult.model_validate({"action": self._action, "content": content})

    async def sampled(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.asked.append(params)
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(type="text", text="42"), model="tiny"
        )

    async def rooted(self, context: ClientRequestContext) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///work"}]})

    @property
    def callbacks(self) -> dict[str, Any]:
        """All three, as a client takes them; each also declares its capability."""
        return {
            "elicitation_callback": self.elicited,
            "sampling_callback": self.sampled,
            "list_roots_callback": self.rooted,
        }


async def text_of(client: Client, tool: str, arguments: dict[str, Any] | None = None) -> str:
    """The one text that a tool answers, marked if it is an error."""
    result = await client.call_tool(tool, arguments)
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return f"error: {block.text}" if result.is_error else block.text
