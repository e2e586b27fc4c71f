"""The services that an agent requests from us: permissions, files, terminals, questions."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Raw

from portico.agents.turns.call_paths import CallPath
from portico.agents.turns.confined_files import ConfinedFiles
from portico.agents.turns.delegation import AgentLaunch, AgentQuestion
from portico.agents.turns.lenient import amount, fields, items, short, text, texts
from portico.agents.turns.permission_broker import PermissionBroker
from portico.agents.turns.question_text import QuestionSource
from portico.agents.turns.questions import Questions
from portico.agents.turns.terminals import Terminals
from portico.core.catalog.attributed_questions import labelled_form
from portico.core.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, McpError
from portico.core.protocol.codec import encode
from portico.upstream.wires.wire import MAX_MESSAGE

_PIECE = 64 * 1024
"""The characters that are encoded at once; threads run between two pieces."""

T = TypeVar("T")
Params = dict[str, Any]
Answer = Callable[["Callbacks", Params], Awaitable[Mapping[str, Any]]]


class Callbacks:
    """Answers the requests of one turn. Files and terminals are off unless granted."""

    def __init__(
        self,
        launch: AgentLaunch,
        files: ConfinedFiles,
        broker: PermissionBroker,
        terminals: Terminals,
        questions: Questions,
        source: QuestionSource,
        record: Callable[[str], None],
    ) -> None:
        self._launch = launch
        self._files = files
        self._broker = broker
        self._terminals = terminals
        self._questions = questions
        self._source = source
        self._record = record

    async def answer(self, method: str, params: Params) -> Mapping[str, Any]:
        """Return the result of a request; raises McpError for one that is unknown or off."""
        answer = _ANSWERS.get(method)
        if answer is None or not self._is_granted(method):
            raise McpError(f"this client does not support {method[:80]}", METHOD_NOT_FOUND)
        return await answer(self, params)

    def _is_granted(self, method: str) -> bool:
        granted = self._launch.callbacks
        if method == "fs/read_text_file":
            return granted.reads
        if method == "fs/write_text_file":
            return granted.writes
        return granted.terminal or not method.startswith("terminal/")

    async def _permission(self, params: Params) -> Mapping[str, Any]:
        return await self._broker.answer(params)

    async def _read(self, params: Params) -> Mapping[str, Any]:
        path = self._permitted("read", params)
        line, limit = (_count(params.get(key)) for key in ("line", "limit"))
        return {"content": await _to_the_end(self._read_encoded, path, line, limit)}

    def _read_encoded(self, path: str, line: int | None, limit: int | None) -> Raw:
        """Read a file, and encode it here: that takes longer than all else, and the loop waits for
        nothing but one piece at a time."""
        content = self._files.read(path, line, limit)
        pieces = (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))
        encoded = b"".join((b'"', *(encode(piece)[1:-1] for piece in pieces), b'"'))
        if len(encoded) > MAX_MESSAGE:
            why = f"the text of {path[:200]!r} exceeds {MAX_MESSAGE} bytes as JSON"
            raise McpError(f"{why}; read some lines of it", INVALID_PARAMS)
        return Raw(encoded)

    async def _write(self, params: Params) -> Mapping[str, Any]:
        path = self._permitted("edit", params)
        content = params.get("content")
        if not isinstance(content, str):
            raise McpError("the content is not a string", INVALID_PARAMS)
        await _to_the_end(self._files.write, path, content)
        self._record(f"wrote {short(path)}")
        return {}

    def _permitted(self, kind: str, params: Params) -> str:
        """Return the resolved path of a request; the policy's denials hold here, too."""
        path = text(params.get("path"))
        real = self._files.resolve(path)
        if self._broker.denies(kind, CallPath(os.path.normpath(path), real)):
            self._record(f"refused by the policy: {kind} {short(path)}")
            raise McpError(f"the policy denies {kind} of {path[:200]!r}", INVALID_PARAMS)
        return real

    async def _create_terminal(self, params: Params) -> Mapping[str, Any]:
        command = text(params.get("command"))
        if not command:
            raise McpError("the command is missing", INVALID_PARAMS)
        cwd = self._files.resolve(text(params.get("cwd")) or self._files.folder)
        argv = [command, *texts(items(params.get("args")))]
        shown = short(" ".join(argv))
        if self._broker.denies("execute", CallPath(cwd, cwd)):
            self._record(f"refused by the policy: execute {shown}")
            raise McpError("the policy denies commands", INVALID_PARAMS)
        pairs = map(fields, items(params.get("env")))
        env = {text(one.get("name")): text(one.get("value")) for one in pairs}
        limit = _count(params.get("outputByteLimit"))
        id = await self._terminals.create(argv, env, cwd, limit)
        self._record(f"running in a terminal: {shown}")
        return {"terminalId": id}

    async def _terminal_output(self, params: Params) -> Mapping[str, Any]:
        return self._terminals.output(text(params.get("terminalId")))

    async def _wait_for_terminal(self, params: Params) -> Mapping[str, Any]:
        return await self._terminals.wait(text(params.get("terminalId")))

    async def _kill_terminal(self, params: Params) -> Mapping[str, Any]:
        self._terminals.kill(text(params.get("terminalId")))
        return {}

    async def _release_terminal(self, params: Params) -> Mapping[str, Any]:
        await self._terminals.release(text(params.get("terminalId")))
        return {}

    async def _elicit(self, params: Params) -> Mapping[str, Any]:
        """Pass a form on; one without an answer is cancelled."""
        schema = params.get("requestedSchema")
        if params.get("mode", "form") != "form" or not isinstance(schema, dict):
            return {"action": "cancel"}
        policy = self._launch.permissions
        question = AgentQuestion(
            kind="elicitation",
            message=self._source.pass_on(params.get("message")),
            schema=labelled_form(schema, self._launch.name),
            for_model=policy.ask == "model",
            deadline_s=policy.timeout_s,
        )
        self._record(f"question of the agent: {short(params.get('message'))}")
        try:
            answer = await self._questions.ask(question)
        except TimeoutError:
            answer = None
        if answer is None:
            self._record("the question of the agent was not answered")
            return {"action": "cancel"}
        if answer.action != "accept":
            return {"action": "decline" if answer.action == "decline" else "cancel"}
        return {"action": "accept", "content": dict(answer.content)}


async def _to_the_end(work: Callable[..., T], *args: object) -> T:
    """Run a function in a thread; a request that is cancelled lasts as long, as its thread does."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args))
    running.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise


def _count(value: Any) -> int | None:
    found = amount(value)
    return None if found is None else int(found)


_ANSWERS: Mapping[str, Answer] = {
    "session/request_permission": Callbacks._permission,
    "fs/read_text_file": Callbacks._read,
    "fs/write_text_file": Callbacks._write,
    "terminal/create": Callbacks._create_terminal,
    "terminal/output": Callbacks._terminal_output,
    "terminal/wait_for_exit": Callbacks._wait_for_terminal,
    "terminal/kill": Callbacks._kill_terminal,
    "terminal/release": Callbacks._release_terminal,
    "elicitation/create": Callbacks._elicit,
}
