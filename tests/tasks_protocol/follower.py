"""Clients of both eras, over stdio and HTTP, that follow tasks; every message is held."""

import json
from typing import Any

from tests.support.messages import PREFIX
from tests.support.oracle import WireOracle
from tests.wrap.faults import until
from tests.wrap.talk import Client, Pipes, Web

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
ABLE: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
ACCEPT = {"action": "accept", "content": {"confirm": True}}
OVER = ("completed", "failed", "cancelled")


class Follower(Client):
    """A client that begins tasks and follows them, in the way of its era."""

    able: dict[str, Any] = ABLE
    prefix = ""
    """Before the names of tools."""
    executes = False
    """True if it calls tools through `execute_tool`."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.oracle = WireOracle()
        super().__init__(*args, **more)

    def send(self, raw: bytes) -> None:
        """Send a message, which the oracle hears first."""
        self.oracle.client_sent(raw)
        super().send(raw)

    def hear(self, raw: bytes) -> None:
        """Take in a message, which must be valid."""
        self.oracle.server_sent(raw)
        super().hear(raw)

    def request(
        self, method: str, params: bytes | dict[str, Any] | None = None, id: bytes = b""
    ) -> bytes:
        """Send a request with this client's capabilities."""
        if self.modern and not isinstance(params, bytes):
            given = dict(params or {})
            meta = {PREFIX + "clientCapabilities": self.able, **given.get("_meta", {})}
            params = {**given, "_meta": meta}
        return super().request(method, params, id)

    def fetch(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The whole answer to a request."""
        answer: dict[str, Any] = json.loads(self.answer(self.request(method, params)))
        return answer

    def called(self, tool: str, ttl: Any = 60_000, **arguments: Any) -> dict[str, Any]:
        """The whole answer to a call that may become a task."""
        params = self.call_of(tool, arguments)
        if not self.modern:
            params["task"] = {"ttl": ttl}
        return self.fetch("tools/call", params)

    def call_of(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The params of a call, in this client's way."""
        named: dict[str, Any] = {"name": self.prefix + tool, "arguments": arguments}
        return {"name": "execute_tool", "arguments": named} if self.executes else named

    def begin(self, tool: str, **arguments: Any) -> str:
        """Begin a task; its id."""
        answer = self.called(tool, **arguments)
        result = answer.get("result", {})
        task = result if self.modern else result.get("task", {})
        assert task.get("status") == "working", answer
        id: str = task["taskId"]
        return id

    def task(self, id: str) -> dict[str, Any]:
        """The state of a task."""
        answer = self.fetch("tasks/get", {"taskId": id})
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def reached(self, id: str, *statuses: str) -> dict[str, Any]:
        """Wait for one of these states of a task."""
        seen: list[dict[str, Any]] = []

        def there() -> bool:
            seen.append(self.task(id))
            return seen[-1]["status"] in statuses

        assert until(there), seen[-1]
        return seen[-1]

    def questions(self, id: str, count: int) -> dict[str, Any]:
        """Wait until so many questions of a modern client's task are open."""
        seen: list[dict[str, Any]] = []

        def there() -> bool:
            seen.append(self.task(id).get("inputRequests", {}))
            return len(seen[-1]) == count

        assert until(there), self.task(id)
        return seen[-1]

    def update(self, id: str, answers: dict[str, Any]) -> None:
        """Answer questions of a modern client's task."""
        answer = self.fetch("tasks/update", {"taskId": id, "inputResponses": answers})
        assert "result" in answer, answer

    def answer_next(self, id: str, answer: Any) -> None:
        """Answer the next question of a modern client's task, and wait until it is closed: then the
        one after it may be open already."""
        asked = self.questions(id, 1)
        self.update(id, dict.fromkeys(asked, answer))
        assert until(lambda: not asked.keys() & self.task(id).get("inputRequests", {}).keys())

    def outcome(self, id: str) -> dict[str, Any]:
        """The status, and the result or error, of a task that ends; without what eras add."""
        if self.modern:
            task = ended = self.reached(id, *OVER)
        else:
            ended = self.fetch("tasks/result", {"taskId": id})
            task = self.reached(id, *OVER)
            if "result" in ended:
                assert ended["result"]["_meta"].pop(RELATED) == {"taskId": id}
        found: dict[str, Any] = {"status": task["status"]}
        found |= {key: ended[key] for key in ("result", "error") if key in ended}
        for key in ("_meta", "resultType"):
            found.get("result", {}).pop(key, None)
        return found


class FollowingWeb(Follower, Web):
    """Over HTTP."""


class FollowingPipes(Follower, Pipes):
    """Over stdio."""
