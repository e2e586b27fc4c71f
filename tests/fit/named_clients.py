"""Clients that call themselves like real ones, in either era, over stdio and HTTP."""

import json
from pathlib import Path
from typing import Any

from tests.rigs.wire import dumps
from tests.serve.gateway import serve_command
from tests.support.messages import PREFIX
from tests.wrap.talk import LEGACY, Client, Pipes

CLAUDE = {"name": "claude-code", "version": "2.1.326"}
GEMINI = {"name": "gemini-cli-mcp-client", "version": "0.61.0"}


class NamedClient:
    """A client with a name; a modern one sends it with every request."""

    def __init__(self, client: Client, info: Any) -> None:
        self.client = client
        self.info = info
        if not client.modern:
            asked = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
            client.request("initialize", dumps(asked), b"0")
            client.result(b"0")
            client.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def answer(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer to a request."""
        named = {"_meta": {PREFIX + "clientInfo": self.info}} if self.client.modern else {}
        id = self.client.request(method, {**params, **named})
        found: dict[str, Any] = json.loads(self.client.answer(id))
        return found

    def result(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request, which must succeed."""
        answer = self.answer(method, **params)
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a call."""
        return self.result("tools/call", name=tool, arguments=arguments)

    def tools(self) -> list[str]:
        """The names of the tools that it is shown."""
        return [tool["name"] for tool in self.result("tools/list")["tools"]]

    @property
    def searches(self) -> bool:
        """True if it is shown the meta-tools, False if it is shown the servers' own."""
        tools = self.tools()
        assert ("search_tools" in tools) != ("mine__book-7" in tools), tools
        return "search_tools" in tools


def window(home: Path, config: Path, *options: str, modern: bool) -> Pipes:
    """A window of a gateway; use it as a context."""
    return Pipes(home, words=serve_command(home, config, *options), modern=modern)
