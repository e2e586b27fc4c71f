"""Follows a task that a server created itself, until it ends.

The task is queried again after a restart of Portico, so another worker can continue it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from time import time
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.model.context import Context
from portico.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, McpError
from portico.model.message import Meta, Request, Response
from portico.model.session import Session
from portico.model.tasking import CreatedTask
from portico.model.version import LATEST_LEGACY, MODERN, Version
from portico.protocol.codec import decoded, encode
from portico.protocol.eras import CAPABILITIES_KEY, INFO_KEY, VERSION_KEY
from portico.protocol.tasks import with_tasks
from portico.providers.task_call import TaskPeer, context_capabilities
from portico.providers.task_wire import outcome_of
from portico.state.background import Background
from portico.tasks.record import CANCELLED
from portico.tasks.work import TaskOutcome, Work
from portico.tasks.worker import failed_outcome
from portico.upstream.attributed_questions import named_question

MAX_FOLLOW_S = 24 * 3600.0
"""How long a task is followed if its server does not limit it."""
_MIN_POLL_S, _MAX_POLL_S = 0.1, 5.0
_CANCEL_S = 10.0
_GONE = (INVALID_PARAMS, METHOD_NOT_FOUND)
_INFO = {"name": "portico", "version": "0"}

TaskRelay = Callable[[Request, Context], Awaitable[Response]]
"""Sends a request to a server; raises McpError if it is not reached."""


class RemoteTask(Struct, kw_only=True):
    """The input of a task that follows a server's own."""

    server: str
    id: str
    modern: bool
    name: str
    """The tool whose call created it."""
    capabilities: Raw
    info: Raw
    names_servers: bool = False
    ttl_s: float | None = None


class _State(Struct):
    status: str = ""
    statusMessage: str = ""  # noqa: N815  (fields of the wire)
    pollInterval: float | None = None  # noqa: N815
    pollIntervalMs: float | None = None  # noqa: N815
    result: Raw = Raw(b"")
    error: Raw = Raw(b"")
    inputRequests: dict[str, Raw] = {}  # noqa: N815


def remote_input(
    server: str, created: CreatedTask, request: Request, context: Context, *, names_servers: bool
) -> bytes:
    """Return the input of a task that follows one that a server created."""
    capabilities = dict(context_capabilities(request, context))
    session = context.session
    info = request.meta.client_info or encode((session.client_info if session else None) or _INFO)
    return encode(
        RemoteTask(
            server=server,
            id=created.id,
            modern=created.modern,
            name=request.name,
            capabilities=Raw(encode(capabilities)),
            info=Raw(info),
            names_servers=names_servers,
            ttl_s=created.ttl_s,
        )
    )


class RemoteTaskRunner:
    """Follows the tasks of servers."""

    is_repeatable = True
    begins_itself = False

    def __init__(self, relay_of: Callable[[str], TaskRelay | None]) -> None:
        """`relay_of` finds a server by its name."""
        self._relay_of = relay_of

    async def run(self, work: Work) -> TaskOutcome:
        """Follow one task to its end."""
        return await self.follow(work.input, work)

    async def follow(self, input: bytes, work: Work) -> TaskOutcome:
        """Follow the task that an input describes, on behalf of another one."""
        remote = msgspec.json.decode(input, type=RemoteTask)
        relay = self._relay_of(remote.server)
        if relay is None:
            return failed_outcome(f"the server {remote.server!r} is not configured any more")
        following = _Following(remote, relay, work)
        try:
            return await following.run()
        except asyncio.CancelledError:
            if work.is_cancelled:
                with contextlib.suppress(McpError, TimeoutError):
                    async with asyncio.timeout(_CANCEL_S):
                        await following.send("tasks/cancel")
            raise
        finally:
            await following.close()


class _Following:
    """One task at its server."""

    def __init__(self, remote: RemoteTask, relay: TaskRelay, work: Work) -> None:
        self._remote = remote
        self._relay = relay
        self._work = work
        self._background = Background()
        self._asked: set[str] = set()
        self._fetching: asyncio.Task[Response] | None = None
        """The pending `tasks/result` of a legacy server, which carries its questions."""
        self._message = ""
        self._session = Session(_discard, principal=work.task.principal)
        self._session.names_servers = remote.names_servers
        if not remote.modern:
            self._session.version = LATEST_LEGACY
            self._session.capabilities = msgspec.json.decode(remote.capabilities)
            self._session.client_info = msgspec.json.decode(remote.info)

    async def run(self) -> TaskOutcome:
        """Query the task until it ends."""
        ttl_s = self._remote.ttl_s or MAX_FOLLOW_S
        until = self._work.task.created_at + ttl_s
        pause, longest = _MIN_POLL_S, _MAX_POLL_S
        trouble = ""
        while time() < until:
            try:
                fetched = self._fetched_already()
                if fetched is not None and not fetched.error:
                    return outcome_of(fetched, modern=False)
                response = await self.send("tasks/get")
                if response.error and fetched is not None:
                    return outcome_of(fetched, modern=False)
                if response.error:
                    ended = self._refused(response, trouble)
                else:
                    trouble = ""
                    state = decoded(response.result, _State) or _State()
                    ended = await self._advance(state)
                    longest = _suggested_s(state)
                if ended is not None:
                    return ended
            except McpError as error:
                trouble = error.message  # it may come back
                pause = _MAX_POLL_S
            pause = min(pause * 1.5, longest)  # a task that is short ends early
            await self._wait(min(pause, max(0.0, until - time())))
        why = trouble or "it still reported that it was working"
        words = (
            f"{self._remote.server} did not finish the task within its ttl of {ttl_s:g} s: {why}"
        )
        return failed_outcome(words, {"kind": "timeout", "server": self._remote.server})

    async def _wait(self, pause_s: float) -> None:
        """Wait a while, or for the result that a legacy server sends by itself."""
        if self._fetching is None or self._fetching.done():
            await asyncio.sleep(pause_s)
        else:
            await asyncio.wait({self._fetching}, timeout=pause_s)

    async def _advance(self, state: _State) -> TaskOutcome | None:
        """Act on the task's state; return the outcome if it has ended."""
        if state.statusMessage and state.statusMessage != self._message:
            self._message = state.statusMessage
            await self._work.progress(state.statusMessage)
        if state.status == "cancelled":
            return TaskOutcome(CANCELLED, message=state.statusMessage or "cancelled by the server")
        if state.status in ("completed", "failed"):
            return await self._ended(state)
        if state.status == "input_required":
            self._ask(state)
        return None

    async def _ended(self, state: _State) -> TaskOutcome:
        if not self._remote.modern:
            return outcome_of(await self._fetched(), modern=False)
        if state.status == "failed":
            error = bytes(state.error) or b'{"code":-32603,"message":"the task failed"}'
            return outcome_of(Response(id=b"0", error=error), modern=True)
        return outcome_of(Response(id=b"0", result=bytes(state.result) or b"{}"), modern=True)

    def _ask(self, state: _State) -> None:
        """Pass the questions of a server on, each once."""
        if not self._remote.modern:
            self._fetch()
            return
        for key, question in state.inputRequests.items():
            if key not in self._asked:
                self._asked.add(key)
                self._background.start(self._answer(key, bytes(question)))

    async def _answer(self, key: str, question: bytes) -> None:
        if self._remote.names_servers:
            question = encode(named_question(question, self._remote.server))
        (answer,) = await self._work.ask([question])
        try:
            await self.send("tasks/update", {"inputResponses": {key: Raw(answer)}})
        except McpError:
            self._asked.discard(key)  # the question returns while the server still lacks its answer

    def _fetch(self) -> "asyncio.Task[Response]":
        if self._fetching is None or (self._fetching.done() and _failed(self._fetching)):
            self._fetching = asyncio.ensure_future(self.send("tasks/result", wait=True))
        return self._fetching

    def _fetched_already(self) -> Response | None:
        """Return the result that a legacy server sent while it was queried."""
        fetching = self._fetching
        is_there = fetching is not None and fetching.done() and not _failed(fetching)
        return fetching.result() if fetching is not None and is_there else None

    async def _fetched(self) -> Response:
        return await asyncio.shield(self._fetch())

    def _refused(self, response: Response, trouble: str) -> TaskOutcome | None:
        """Return the end of a task that its server has lost, after a failure if one was seen."""
        if response.code not in _GONE:
            return None
        server = self._remote.server
        words = f"{server} does not know its task any more"
        words += f"; before that: {trouble}" if trouble else "; it may have restarted"
        return failed_outcome(words, {"kind": "forgotten", "server": server})

    async def send(
        self, method: str, more: dict[str, Any] | None = None, *, wait: bool = False
    ) -> Response:
        """Send a request about the task; `wait` for one that ends with the task."""
        remote = self._remote
        params: dict[str, Any] = {"taskId": remote.id, **(more or {})}
        meta, version = Meta(), LATEST_LEGACY
        if remote.modern:
            version = MODERN[-1]
            meta = Meta(with_tasks(bytes(remote.capabilities)), bytes(remote.info))
            params["_meta"] = _modern_meta(version, meta)
        request = Request(
            method=method,
            id=b"0",
            params=encode(params),
            version=version,
            meta=meta,
            timeout_s=MAX_FOLLOW_S if wait else 0.0,
            is_derived=True,
        )
        context = Context(
            principal=self._work.task.principal,
            session=None if remote.modern else self._session,
            peer=TaskPeer(self._work),
            version=version,
        )
        return await self._relay(request, context)

    async def close(self) -> None:
        """End everything that waits for the server."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})
        await self._background.close()
        self._session.end()


def _suggested_s(state: _State) -> float:
    """Return the time between queries that the server suggests, within limits."""
    suggested = state.pollIntervalMs if state.pollIntervalMs is not None else state.pollInterval
    if suggested is None:
        return _MAX_POLL_S
    return min(max(suggested / 1000, _MIN_POLL_S), _MAX_POLL_S)


def _modern_meta(version: Version, meta: Meta) -> dict[str, Any]:
    return {
        VERSION_KEY: version.text,
        INFO_KEY: Raw(meta.client_info),
        CAPABILITIES_KEY: Raw(meta.client_capabilities),
    }


def _failed(task: "asyncio.Task[Response]") -> bool:
    return task.cancelled() or task.exception() is not None


def _discard(message: bytes) -> None:
    """Drop a message to the session, which only represents the task's client."""
