"""Windows of a gateway whose agents are MCP clients of what they are handed."""

import asyncio
import json
import os
import sys
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

from portico.core.model.context import LOCAL
from portico.library.tasks.store.store import tasks_in_folder
from tests.agents.delegation.delegations import wrote
from tests.serve.gateway import Gateway, result_of, text_in
from tests.support.running import Piped, initialize_params
from tests.support.shared import ROOT
from tests.wrap.faults import alive, descendants, until

AGENT = ROOT / "tests" / "rigs" / "mcp_agent.py"
DESK = ROOT / "tests" / "agents" / "delegation" / "servers" / "desk.py"
ALLOWED, FORBIDDEN = "desk__echo", "desk__secret"
GONE_S = 20.0

Step = list[Any]


def mcp_agent(options: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """The entry of an agent that is an MCP client."""
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(AGENT), json.dumps(options or {})],
        "capabilities": ["code"],
        "pool": {"max": 0},
        **keys,
    }


def ask(method: str, **params: Any) -> Step:
    """A request of the agent at the server it is handed."""
    return ["ask", method, params]


def call(tool: str, /, **arguments: Any) -> Step:
    """The agent's call of a tool."""
    return ask("tools/call", name=tool, arguments=arguments)


class DeskWindow(Piped):
    """A window, opened in a folder, whose client delegates to agents."""

    def submit(self, agent: str, steps: list[Step], **more: Any) -> str:
        """Delegate some steps in the background; the task's id."""
        result = self._delegated(agent, steps, background=True, **more)
        id: str = result_of(result)["structuredContent"]["task_id"]
        return id

    def delegate(self, agent: str, *steps: Step, **more: Any) -> list[Any]:
        """Delegate some steps; their outcomes."""
        result = result_of(self._delegated(agent, list(steps), **more))
        assert not result.get("isError"), result
        return outcomes_in(result)

    def refusal(self, agent: str, **more: Any) -> str:
        """The text of a delegation that is refused."""
        result = result_of(self._delegated(agent, [], **more))
        assert result["isError"]
        return text_in(result)

    def outcomes(self, task: str) -> list[Any]:
        """Wait for a task; the outcomes of its steps."""
        while True:
            status = {"task_id": task, "wait_s": 50}
            answer = self.ask("tools/call", {"name": "agent_status", "arguments": status})
            result = result_of(answer)
            if result["structuredContent"].get("status") not in ("queued", "starting", "running"):
                return outcomes_in(result)

    def _delegated(self, agent: str, steps: list[Step], **more: Any) -> dict[str, Any]:
        arguments = {"task_type": "code", "prompt": json.dumps(steps), "agent_id": agent, **more}
        return self.ask("tools/call", {"name": "delegate_task", "arguments": arguments})


def outcomes_in(result: dict[str, Any]) -> list[Any]:
    """The outcomes in the result of a delegation."""
    text = result["structuredContent"].get("result", "")
    assert text.startswith("["), result
    found: list[Any] = json.loads(text)
    return found


class DeskGateway:
    """A config with agents, the windows of its gateway, and all that these leave behind."""

    def __init__(
        self, folder: Path, agents: dict[str, Any], *, http: str = "", **tables: Any
    ) -> None:
        """`http` is the authentication over HTTP: `token` or `none`; empty for stdio only."""
        self.folder = folder
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir()
        self.config = wrote(
            folder / "portico.toml",
            agents,
            gateway={"expose": "all"},
            components__desk={"path": str(DESK), "in_process": True},
            **tables,
        )
        self._http = http
        self.stack = ExitStack()
        self._numbers = count()

    def __enter__(self) -> Self:
        if self._http:
            self.stack.enter_context(Gateway(self.home, self.config, "--auth", self._http))
        return self

    def __exit__(self, *about: Any) -> None:
        owners = self.owners()
        kin = owners.union(*(descendants(pid) for pid in owners))
        self.stack.__exit__(*about)
        assert until(lambda: not alive(kin), GONE_S), "it left processes behind"

    def owners(self) -> set[int]:
        """The processes with a control socket that live."""
        sockets = (self.home / "state" / "control").glob("*.sock")
        return alive({int(path.stem) for path in sockets})

    def window(
        self, *options: str, folder: Path | None = None, verb: str = "serve --stdio"
    ) -> DeskWindow:
        """One more window, opened in a folder; its client has shaken hands."""
        place = ["env", "-C", str(folder or self.work), f"PORTICO_HOME={self.home}"]
        portico = [sys.executable, "-P", "-m", "portico", *verb.split()]
        command = [*place, *portico, "--config", str(self.config), *options]
        window = self.stack.enter_context(DeskWindow(command, watched=False))
        window.ask("initialize", initialize_params("2025-11-25"))
        window.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return window

    def state(self, principal: str, task: str) -> str:
        """The state of a principal's task."""

        async def read() -> str:
            store = tasks_in_folder(str(self.home / "state"))
            try:
                found = await store.get(principal, task)
            finally:
                await store.close()
            return "" if found is None else str(found.state)

        return asyncio.run(read())

    def events(self, task: str) -> list[str]:
        """The events of a task of a window."""

        async def read() -> list[str]:
            store = tasks_in_folder(str(self.home / "state"))
            try:
                found = await store.get(LOCAL, task)
                assert found is not None
                return [event.text for event in await store.events(found)]
            finally:
                await store.close()

        return asyncio.run(read())

    def path(self, name: str) -> Path:
        """A path that nothing has; a number makes its name unique."""
        return self.folder / f"{name}-{next(self._numbers)}"

    def pipe(self, name: str) -> Path:
        """A new named pipe."""
        path = self.path(name)
        os.mkfifo(path)
        return path


def release(pipe: Path, text: str = "") -> None:
    """Write to a named pipe, once an agent reads from it."""
    opened: list[int] = []

    def has_reader() -> bool:
        with suppress(OSError):
            opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(opened)

    assert until(has_reader), f"no agent reads {pipe.name}"
    os.write(opened[0], text.encode())
    os.close(opened[0])


def told(path: Path) -> Any:
    """The JSON object that an agent writes to a file."""
    assert until(lambda: path.exists() and path.read_text().endswith("}")), path.name
    return json.loads(path.read_text())
