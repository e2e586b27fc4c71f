"""The methods of tasks, fuzzed at a real gateway in front of servers of both eras."""

import http.client
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz import expect
from tests.fuzz.targets import HttpTarget
from tests.rigs.running import tasks
from tests.serve.gateway import command, written
from tests.support.running import Child, HttpServer, free_port, modern_meta
from tests.support.shared import ROOT
from tests.tasks_protocol.follower import ABLE
from tests.wrap.faults import portico_command

_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_COMPONENT = ROOT / "tests" / "rigs" / "tasks_server.py"
_TOKEN = "a-token-to-fuzz-with"
_UNKNOWN = "ptk_" + "x" * 32
_RESULT = "tasks/result"
_RESULT_S = 5.0
"""How long the result of a task that has not ended is waited for."""


class TasksGateway(HttpServer):
    """A gateway with a component and two servers, all of whose tools run as tasks."""

    def __init__(self, folder: Path) -> None:
        servers = {era: command(tasks(era), era=era) for era in ("legacy", "modern")}
        tables: dict[str, Any] = {
            "gateway": {"expose": "all", "drain": 1},
            "components.rig": {"path": str(_COMPONENT), "in_process": True},
        }
        config = written(folder / "portico.toml", servers, **tables)
        token = folder / "token"
        token.touch(0o600)
        token.write_text(_TOKEN)
        self.port = free_port()
        address = ("--http", f"127.0.0.1:{self.port}", "--token-file", str(token))
        words = ("serve", "--config", str(config), *address)
        Child.__init__(self, portico_command(folder / "home", *words))
        self._wait_until_ready()


class TaskTarget(HttpTarget):
    """Requests about tasks that run, wait for an answer, have ended or do not exist."""

    name = "tasks"
    known: ClassVar[Mapping[str, str]] = {
        "Authorization": f"Bearer {_TOKEN}"
    }  # without it, nobody lists tasks
    proper = HttpTarget.proper | {401}

    def __init__(self, random: Random) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="portico-fuzz-")
        super().__init__(random)
        ended = self._created("rig__slow_compute", {"seconds": 0})
        ids = [
            ended,
            self._created("rig__confirm_delete", {"filename": "a"}),
            self._created("legacy__work", {"ms": 600_000}),
            self._created("modern__work", {"ms": 600_000}),
            _UNKNOWN,
            "task-0-1",  # as the servers themselves name theirs
        ]
        self.valid = [*_messages(ended, ids)]

    def _start(self) -> HttpServer:
        return TasksGateway(Path(self._folder.name))

    def _created(self, tool: str, arguments: dict[str, Any]) -> str:
        """The id of a new task of a modern client."""
        message = _modern("tools/call", {"name": tool, "arguments": arguments})
        headers = {key: value for key, value in self._session.items() if key != "Mcp-Session-Id"}
        headers |= {"MCP-Protocol-Version": "2026-07-28"}
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
        _, answer = self.post(json.dumps(message).encode(), headers)
        id: str = json.loads(answer)["result"]["taskId"]
        return id

    def headers_of(self, message: Any) -> dict[str, str]:
        """Mostly those of the message's own era."""
        is_modern = _CAPABILITIES in json.dumps(message, default=str)
        headers = super().headers_of(message)
        while is_modern == ("Mcp-Session-Id" in headers) and self._random.random() < 0.9:
            headers = super().headers_of(message)
        return headers

    def post(self, body: bytes, headers: dict[str, str], message: Any = None) -> tuple[int, bytes]:
        is_result = isinstance(message, dict) and message.get("method") == _RESULT
        if not is_result or expect.request_id(message) is None:
            return super().post(body, headers, message)
        # The task may never end: then there is no answer before the client leaves.
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=_RESULT_S)
        try:
            connection.request("POST", "/mcp", body, headers)
            response = connection.getresponse()
            return response.status, response.readline()
        except TimeoutError:
            return 202, b""
        finally:
            connection.close()

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._folder.cleanup()


def _modern(method: str, params: dict[str, Any], id: int = 1) -> dict[str, Any]:
    meta = {**modern_meta(), _CAPABILITIES: ABLE}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}


def _messages(ended: str, ids: Sequence[str]) -> Iterator[Any]:
    """Valid messages about tasks, of both eras."""
    asked: list[tuple[str, dict[str, Any]]] = []
    for id in ids:
        answers = {"q1": {"action": "accept", "content": {"confirm": True}}, "": None}
        asked += [("tasks/get", {"taskId": id}), ("tasks/cancel", {"taskId": id})]
        asked += [("tasks/update", {"taskId": id, "inputResponses": answers})]
        asked += [("subscriptions/listen", {"notifications": {"taskIds": [id, ended]}})]
        for tool in ("task_status", "cancel_task"):
            asked += [("tools/call", {"name": tool, "arguments": {"task_id": id, "answer": "yes"}})]
    asked += [(_RESULT, {"taskId": id}) for id in (ended, _UNKNOWN)]
    asked += [("tasks/list", {}), ("tasks/list", {"cursor": "1"})]
    asked += [("tools/call", {"name": "list_tasks", "arguments": {}})]
    for tool in ("rig__slow_compute", "legacy__work", "modern__work", "rig__greet"):
        called = {"name": tool, "arguments": {"seconds": 0, "ms": 0, "name": "Ada"}}
        asked += [("tools/call", {**called, "task": {"ttl": 60_000}}), ("tools/call", called)]
    for number, (method, params) in enumerate(asked):
        yield {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        yield _modern(method, params, number)
    for method in ("notifications/tasks/status", "notifications/tasks"):
        told: dict[str, Any] = {"taskId": ended, "status": "cancelled", "ttl": None, "result": {}}
        yield {"jsonrpc": "2.0", "method": method, "params": told}
