"""A gateway with scripted agents, for delegations from end to end."""

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import TaskRecord
from portico.library.tasks.store.store import tasks_in_folder
from tests.agents.turns.rig import FAKE
from tests.interop.sdk import only_one
from tests.support.running import WAIT_S

Table = dict[str, Any]


def acp(*steps: Any, script: Mapping[str, Any] | None = None, **keys: Any) -> Table:
    """The `[[agents]]` table of the scripted agent, without its id."""
    whole = {"prompt": list(steps)} if steps else {}
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(FAKE), json.dumps({**whole, **(script or {})})],
        "capabilities": ["code"],
        "supervised": True,
        "pool": {"max": 0},
        **keys,
    }


def wrote(
    path: Path, agents: Mapping[str, Table], rules: Sequence[Table] = (), **more: Any
) -> Path:
    """A config with these agents and rules; `more` are other tables."""
    lines = []
    for name, table in more.items():
        lines += [f"[{name.replace('__', '.')}]", *_keys(table)]
    for id, table in agents.items():
        lines += ["[[agents]]", *_keys({"id": id, **table})]
    for rule in rules:
        lines += ["[[routing.rules]]", *_keys(rule)]
    path.write_text("\n".join(lines) + "\n")
    return path


def _keys(table: Table) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items()]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(of)}" for key, of in value.items()) + "}"
    return json.dumps(value)


class Crew:
    """Agents, the folder they work in, and the home of their gateway."""

    def __init__(
        self, folder: Path, agents: Mapping[str, Table], rules: Sequence[Table] = (), **more: Any
    ) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.home = folder / "home"
        defaults = {"roots": [str(self.work)], **more.pop("agents_defaults", {})}
        self.config = wrote(
            folder / "portico.toml", agents, rules, agents_defaults=defaults, **more
        )

    @property
    def environment(self) -> dict[str, str]:
        """Its environment: all that Portico keeps is in the folder."""
        return {**os.environ, "PORTICO_HOME": str(self.home)}

    async def tasks(self) -> list[TaskRecord]:
        """All tasks of the user, newest first."""
        store = tasks_in_folder(str(self.home / "state"))
        try:
            page = await store.page(LOCAL)
        finally:
            await store.close()
        assert page is not None
        return page.tasks

    def command(self, *words: str) -> list[str]:
        """The command line of a command of Portico."""
        return [sys.executable, "-m", "portico", *words, "--config", str(self.config)]

    def window(self, era: str = "legacy", verb: str = "serve", **options: Any) -> Any:
        """A client of the official SDK at a window of its own, opened in the work folder."""
        command, *args = self.command(*verb.split())
        server = StdioServerParameters(
            command=command, args=args, env=self.environment, cwd=self.work
        )
        return connected(stdio_client(server), era, **options)


def over_http(port: int, era: str = "legacy", **options: Any) -> Any:
    """A client of the official SDK at a gateway over HTTP."""
    return connected(streamable_http_client(f"http://127.0.0.1:{port}/mcp"), era, **options)


@asynccontextmanager
async def connected(transport: Any, era: str, **options: Any) -> AsyncIterator[Client]:
    """A client of the official SDK in an era, over a transport of its own."""
    mode = "auto" if era == "modern" else "legacy"
    try:
        with anyio.fail_after(2 * WAIT_S):
            async with Client(transport, mode=mode, **options) as client:
                yield client
    except BaseExceptionGroup as group:
        raise only_one(group) from None


class Person:
    """Answers every form with the same action and option, and keeps the questions."""

    def __init__(self, option: str = "yes", action: str = "accept") -> None:
        self.asked: list[types.ElicitRequestFormParams] = []
        self._answer = {"action": action}
        if action == "accept":
            self._answer["content"] = {"option": option}  # type: ignore[assignment]

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.asked.append(params)
        return types.ElicitResult.model_validate(self._answer)


async def delegate(client: Client, agent: str = "", **given: Any) -> types.CallToolResult:
    """Delegate a task, to an agent if it is named."""
    arguments = {"task_type": "code", "prompt": "do it", **given}
    if agent:
        arguments["agent_id"] = agent
    return await client.call_tool("delegate_task", arguments)


def data(result: types.CallToolResult) -> dict[str, Any]:
    """The structured content of a result that is not an error."""
    assert not result.is_error, result.content
    found: dict[str, Any] | None = result.structured_content
    assert found is not None, result.content
    return found


def words(result: types.CallToolResult) -> str:
    """The text of a result."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


def refusal(result: types.CallToolResult) -> str:
    """The text of a result that is an error."""
    assert result.is_error, result
    return words(result)


async def in_state(client: Client, task: str, *states: str) -> dict[str, Any]:
    """Wait until a task is in one of these states; its state, or its result."""
    while True:
        result = await client.call_tool("agent_status", {"task_id": task, "wait_s": 20})
        found: dict[str, Any] | None = result.structured_content
        assert found is not None, result.content
        if found["status"] in states:
            return found
        await anyio.sleep(0.02)
