"""A hostile agent is fuzzed with: a real child process whose messages are all broken.

It writes each group of inputs after the prompt, then one good request; when that is answered, it
ends its turn.
"""

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from portico.agents.turns.delegation import AgentLaunch
from portico.agents.turns.run_turn import run_turn
from portico.core.config.agents_schema import AgentCallbacks, AgentTimeouts
from portico.core.model.errors import TargetError
from tests.agents.turns.rig import OPTIONS, FakePort, prompt
from tests.fuzz import expect
from tests.fuzz.targets import PATIENCE_S, Broken

AGENT = """
import json, os, sys
lines, log = sys.argv[1:]
heard = open(log, "wb")
def send(message):
    os.write(1, (json.dumps({"jsonrpc": "2.0", **message}) + "\\n").encode())
for line in sys.stdin.buffer:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send({"id": id, "result": {"protocolVersion": 1}})
    elif method == "session/new":
        send({"id": id, "result": {"sessionId": "s"}})
    elif method == "session/prompt":
        turn = id
        with open(lines, "rb") as file:
            data = file.read()
        while data:
            data = data[os.write(1, data):]
        send({"id": "good", "method": "_vendor/none", "params": {}})
    else:
        heard.write(line)
        heard.flush()
        if id == "good":
            send({"id": turn, "result": {"stopReason": "end_turn"}})
"""
FOLDER = "/FOLDER"
"""Stands for the folder of the task, so that the same inputs can be sent again."""
CALL: dict[str, Any] = {
    "toolCallId": "c",
    "title": "Read README.md",
    "kind": "execute",
    "status": "pending",
    "rawInput": {"command": "true", "path": "a.txt"},
    "locations": [{"path": "a.txt", "line": 1}],
    "content": [{"type": "diff", "path": "a.txt", "oldText": "a", "newText": "b"}],
}


class AcpTarget:
    """One turn for each group: it ends, and the agent got nothing that its policy denies."""

    name = "acp"
    group = 20

    @property
    def valid(self) -> Sequence[Any]:
        """The messages of an agent."""
        return _valid(FOLDER)

    def __init__(self, random: Random) -> None:
        self._home = tempfile.TemporaryDirectory()
        self._folder = Path(self._home.name, "inside")
        (self._folder / ".git").mkdir(parents=True)
        (self._folder / "a.txt").write_text("text\n" * 3)
        (self._folder / "link").symlink_to("..")
        self._runner = asyncio.Runner()

    def feed(self, inputs: Sequence[bytes]) -> None:
        """Take a turn with these messages."""
        script, log = (Path(self._home.name, name) for name in ("lines", "log"))
        lines = b"".join(body + b"\n" for body in inputs)
        lines = lines.replace(FOLDER.encode(), str(self._folder).encode())
        script.write_bytes(lines)
        try:
            self._runner.run(self._turn(script, log))
        except (TargetError, Broken) as error:
            if isinstance(error, Broken):
                raise Broken(str(error), inputs) from None
        except BaseException as error:
            raise Broken(f"{type(error).__name__}: {error}", inputs) from error
        why = _wrong_answer(lines.split(b"\n"), log.read_bytes().splitlines())
        if why or (why := self._wrong_file()):
            raise Broken(why, inputs)

    async def _turn(self, script: Path, log: Path) -> None:
        wrong: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: wrong.append(str(context)))
        agent = AgentLaunch(
            name="fuzzed",
            argv=(sys.executable, "-I", "-S", "-c", AGENT, str(script), str(log)),
            timeouts=AgentTimeouts(start=PATIENCE_S, idle=PATIENCE_S, hard=2 * PATIENCE_S),
            callbacks=AgentCallbacks(fs="read-write", terminal=True),
        )
        outcome = await run_turn(agent, prompt(self._folder), FakePort())
        if wrong:
            raise Broken(wrong[0], [])
        if outcome.stop_reason in ("idle", "timeout", "hard"):
            raise Broken(f"the good request was not answered: {outcome.error}", [])

    def _wrong_file(self) -> str:
        names = {path.name for path in Path(self._home.name).iterdir()} - {"inside", "lines", "log"}
        in_git = [path.name for path in (self._folder / ".git").iterdir()]
        return f"it wrote outside its files: {names} {in_git}" if names or in_git else ""

    def close(self) -> None:
        """Remove its folder."""
        self._runner.close()
        self._home.cleanup()


def _wrong_answer(lines: Sequence[bytes], heard: Sequence[bytes]) -> str:
    """Each id is answered at most as often as it was sent, and nothing is allowed."""
    read = map(expect.read, lines)
    sent = [message for one in read for message in (one if isinstance(one, list) else [one])]
    asked = Counter(json.dumps(m["id"]) for m in sent if isinstance(m, dict) and "id" in m)
    answers = [json.loads(line) for line in heard]
    got = Counter(json.dumps(m["id"]) for m in answers if "method" not in m)
    del got['"good"']
    if more := got - asked:
        return f"answered more often than requested: {dict(more)}"
    for answer in answers:
        result = answer.get("result")
        outcome = result.get("outcome") if isinstance(result, dict) else None
        if isinstance(outcome, dict) and outcome.get("outcome") == "selected":
            chosen = outcome["optionId"]
            if not any(_rejects(message, chosen) for message in sent):
                return f"option {chosen!r} was chosen without a person"
    return ""


def _rejects(message: Any, chosen: Any) -> bool:
    params = message.get("params") if isinstance(message, dict) else None
    options = params.get("options") if isinstance(params, dict) else None
    return isinstance(options, list) and any(
        isinstance(one, dict)
        and one.get("optionId") == chosen
        and str(one.get("kind")).startswith("reject")
        for one in options
    )


def _valid(folder: str) -> list[Any]:
    """Requests, notifications and responses of an agent."""
    path = f"{folder}/a.txt"
    terminal = {"sessionId": "s", "terminalId": "terminal-1"}
    form = {"type": "object", "properties": {"name": {"type": "string", "title": "Name"}}}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("session/request_permission", {"toolCall": CALL, "options": OPTIONS}),
        ("session/request_permission", {"toolCall": {**CALL, "kind": "edit"}, "options": []}),
        ("fs/read_text_file", {"path": path, "line": 1, "limit": 2}),
        ("fs/read_text_file", {"path": f"{folder}/link/inside/a.txt"}),
        ("fs/write_text_file", {"path": f"{folder}/new.txt", "content": "new"}),
        ("fs/write_text_file", {"path": f"{folder}/.git/config", "content": "[core]"}),
        ("fs/write_text_file", {"path": f"{folder}/link/out.txt", "content": "out"}),
        ("terminal/create", {"command": "true", "args": ["a"], "env": [], "cwd": folder}),
        *((f"terminal/{what}", terminal) for what in ("output", "wait_for_exit", "kill")),
        ("terminal/release", terminal),
        ("elicitation/create", {"mode": "form", "message": "Name?", "requestedSchema": form}),
    ]
    text = {"type": "text", "text": "hello"}
    updates: list[dict[str, Any]] = [
        {"sessionUpdate": "agent_message_chunk", "content": text},
        {"sessionUpdate": "agent_thought_chunk", "content": text},
        {"sessionUpdate": "tool_call", **CALL},
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"},
        {"sessionUpdate": "plan", "entries": [{"content": "x", "status": "pending"}]},
        {"sessionUpdate": "usage_update", "used": 5, "size": 10, "cost": {"amount": 0.1}},
    ]
    made: list[Any] = [
        {"jsonrpc": "2.0", "id": id, "method": method, "params": {"sessionId": "s", **params}}
        for id, (method, params) in enumerate(requests, 100)
    ]
    made += [
        {
            "jsonrpc": "2.0",
            "method": "session/update",
            "params": {"sessionId": "s", "update": update},
        }
        for update in updates
    ]
    cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 100}}
    response = {"jsonrpc": "2.0", "id": 77, "result": {"stopReason": "end_turn"}}
    return [*made, cancel, response]
