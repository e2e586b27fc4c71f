"""A gateway with agents, as it is measured: `portico serve` over stdio, and its delegations."""

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.contenders import AGENT, PYTHON, Asked, Contender
from bench.gateway import EXECUTE, Fleet, GatewayPipe
from bench.process import Workspace
from bench.workload import ROOT, WrongAnswer, tool_request, tools

_PATIENCE_S = 120.0
_QUIET_S = 0.3
"""A process that uses no CPU for so long is idle."""
_LONG_S = 600
Agent = Mapping[str, Any]
"""An `[[agents]]` table."""


def quick_agent(id: str = "quick", *args: str, **more: Any) -> Agent:
    """An agent that answers at once; with a file, once nobody holds a lock on it."""
    args = ("-I", "-S", str(ROOT / AGENT), *args)
    return {"id": id, "command": PYTHON, "args": list(args), "capabilities": ["general"], **more}


class AgentGateway:
    """The config of a gateway with agents, and the folder of their tasks."""

    def __init__(self, workspace: Workspace, name: str, agents: Sequence[Agent]) -> None:
        self.workspace = workspace
        self._name = name
        self._fleet = Fleet(workspace, {"upstream": tools(50)})
        self._work = workspace.path / "work"
        self._work.mkdir(exist_ok=True)
        server = (workspace.path / "portico.toml").read_text(encoding="utf-8")
        roots = {"roots": [str(self._work)], "sync_budget_s": _LONG_S, "max_concurrent": 200}
        lines = [server, "[agents_defaults]", *_keys(roots)]
        for agent in agents:
            lines += ["[[agents]]", *_keys(agent)]
        self._config = workspace.path / "agents.toml"
        self._config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self, *program: str) -> "DelegatingPipe":
        """A gateway that runs; `program` takes the place of the `portico` command."""
        # With `search`, its list does not change while it starts.
        words = ("serve", "--alone", "--expose", "search", "--config", str(self._config))
        argv = (*(program or (PYTHON, "-m", "portico")), *words)
        contender = Contender(self._name, argv, asked=Asked.LEGACY, invokes=EXECUTE)
        return DelegatingPipe(contender, self._fleet)


class DelegatingPipe(GatewayPipe):
    """A running gateway with agents."""

    def __init__(self, contender: Contender, fleet: Fleet) -> None:
        super().__init__(contender, fleet)
        self._open: set[int] = set()

    def delegate(self, prompt: str = "do it") -> dict[str, Any]:
        """The structured result of a delegation."""
        result = self.use("delegate_task", task_type="general", prompt=prompt)
        found: dict[str, Any] = result["structuredContent"]
        if found["status"] != "completed":
            raise WrongAnswer(f"a delegation did not complete: {found}"[:300])
        return found

    def begin(self, count: int) -> None:
        """Send so many delegations at once."""
        given = {"task_type": "general", "prompt": "do it"}
        self._open = {self._new_id() for _ in range(count)}
        requests = [tool_request(id, "delegate_task", given) + b"\n" for id in self._open]
        self._write(b"".join(requests))

    def finish(self) -> None:
        """Wait for the answers to all of them."""
        rest = b""
        while self._open:
            *lines, rest = (rest + self._read()).split(b"\n")
            self._open -= {json.loads(line).get("id") for line in lines}

    def completed(self) -> int:
        """The number of delegations that completed."""
        return sum(one["totals"]["tasks"].get("completed", 0) for one in self.agents())

    def agents(self) -> list[dict[str, Any]]:
        """The agents with their states."""
        found: list[dict[str, Any]] = self.use("agent_status")["structuredContent"]["agents"]
        return found

    def until_warm(self, count: int) -> None:
        """Wait until so many warm processes are ready."""
        self._until(lambda: sum(one.get("warm", 0) for one in self.agents()) >= count)

    def until_running(self, count: int) -> None:
        """Wait until so many agents have started."""
        self._until(lambda: self.running() >= count)

    def running(self) -> int:
        """The number of agents' processes."""
        return sum(_is_agent(pid) for pid in self.process.everyone())

    def settled_cpu_s(self) -> float:
        """CPU seconds of the gateway and its guardian, once both are idle."""
        before = -1.0
        while (now := self.process.cpu_s()) - before > _QUIET_S / 100:
            before = now
            time.sleep(_QUIET_S)
        return now

    def _until(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not is_so():
            if time.monotonic() > until:
                raise WrongAnswer("the agents did not start")
            time.sleep(0.05)


def _is_agent(pid: int) -> bool:
    with suppress(OSError):  # it has ended
        return AGENT.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold agents back for as long as the block runs."""
    with path.open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _keys(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items()]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)
