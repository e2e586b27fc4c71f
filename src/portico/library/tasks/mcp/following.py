"""One task at its server: it is queried until it ends, and its questions are passed on."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.core.catalog.attributed_questions import named_question
from portico.core.model.context import Context, Peer
from portico.core.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, McpError
from portico.core.model.message import Meta, Request, Response
from portico.core.model.session import Session
from portico.core.model.version import LATEST_LEGACY, MODERN, Version
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import CAPABILITIES_KEY, INFO_KEY, VERSION_KEY
from portico.core.protocol.tasks import with_tasks
from portico.core.state.background import Background
from portico.core.state.store_error import StoreError
from portico.library.tasks.mcp.task_call import RunPeer, StoredCall
from portico.library.tasks.mcp.task_wire import outcome_of
from portico.library.tasks.store.record import CANCELLED, NotAccepted
from portico.library.tasks.worker.work import LeaseLost, RunOutcome, Work, failed_outcome

MAX_FOLLOW_S = 24 * 3600.0
"""How long a task is followed if its server does not limit it."""
_MIN_POLL_S, _MAX_POLL_S = 0.1, 5.0
_CANCEL_S = 10.0
_GONE = (INVALID_PARAMS, METHOD_NOT_FOUND)
_FINAL = ("garbage", "question")
"""Failures that would come again: a malformed or oversized answer, a forbidden question."""
MAX_QUESTIONS, MAX_SERVER_QUESTIONS, MAX_ALL_QUESTIONS = 64, 256, 1024
"""The questions of servers that may wait for answers: of one task, of one server, of all."""

TaskRelay = Callable[[Request, Context], Awaitable[Response]]
"""Sends a request to a server; raises McpError if it is not reached."""


class RemoteTask(StoredCall, kw_only=True, omit_defaults=True):
    """The input of a task that follows a server's own: the call that created it, and its id."""

    server: str
    id: str
    modern: bool
    ttl_s: float | None = None

    def of(self, id: str, modern: bool, ttl_s: float | None) -> "RemoteTask":
        """Return another task of the server, for the same call."""
        return replace(self, id=id, modern=modern, ttl_s=ttl_s)

    @property
    def follow_s(self) -> float:
        """How long it is followed."""
        return self.ttl_s or MAX_FOLLOW_S


class _State(Struct):
    status: str = ""
    statusMessage: str = ""  # noqa: N815  (fields of the wire)
    pollInterval: float | None = None  # noqa: N815
    pollIntervalMs: float | None = None  # noqa: N815
    result: Raw = Raw(b"")
    error: Raw = Raw(b"")
    inputRequests: dict[str, Raw] = {}  # noqa: N815


class QuestionLimits:
    """Counts the questions of servers' tasks that wait for answers."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        """By server and by task; all of them under an empty name."""

    @contextlib.contextmanager
    def hold(self, server: str, task: str) -> Iterator[None]:
        """Count a question while it waits; raises NotAccepted if there are too many."""
        limits = {
            f"task {task}": (MAX_QUESTIONS, "its task has"),
            f"server {server}": (MAX_SERVER_QUESTIONS, f"{server} has"),
            "": (MAX_ALL_QUESTIONS, "all servers together have"),
        }
        for key, (most, whose) in limits.items():
            if self._open[key] >= most:
                raise NotAccepted(f"{whose} {most} questions that wait for answers, the limit")
        self._open.update(limits.keys())
        try:
            yield
        finally:
            self._open.subtract(limits.keys())
            for key in limits:
                if not self._open[key]:
                    del self._open[key]


class _ServerTask:
    """One task at its server, and the requests about it."""

    def __init__(
        self, remote: RemoteTask, relay: TaskRelay, principal: str, peer: Peer | None = None
    ) -> None:
        self._remote = remote
        self._relay = relay
        self._principal = principal
        self._peer = peer
        self._session = Session(_discard, principal=principal)
        self._session.names_servers = remote.names_servers
        if not remote.modern:
            self._session.version = LATEST_LEGACY
            self._session.capabilities = msgspec.json.decode(remote.capabilities)
            self._session.client_info = msgspec.json.decode(remote.info)

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
            principal=self._principal,
            session=None if remote.modern else self._session,
            peer=self._peer,
            version=version,
        )
        return await self._relay(request, context)

    async def cancel(self) -> None:
        """Request the end of the task, if its server can be reached."""
        with contextlib.suppress(McpError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self.send("tasks/cancel")

    def close(self) -> None:
        """End the session that represents the task's client."""
        self._session.end()


class Following:
    """A worker's view of one task at its server."""

    def __init__(
        self, remote: RemoteTask, relay: TaskRelay, work: Work, questions: QuestionLimits
    ) -> None:
        self._remote = remote
        self._work = work
        self._hold = partial(questions.hold, remote.server, work.id)
        peer = RunPeer(work, refused=self._refuse, hold=self._hold)
        self._task = _ServerTask(remote, relay, work.task.principal, peer)
        self.cancel = self._task.cancel
        self._background = Background()
        self._asked: dict[str, asyncio.Task[None] | None] = {}
        """The questions that the server has now, each with the wait for its answer, if any."""
        self._unasked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done with the reason once a question of the server cannot be passed on."""
        self._fetching: asyncio.Task[Response] | None = None
        """The pending `tasks/result` of a legacy server, which carries its questions."""
        self._message = ""

    async def run(self, left_s: float) -> RunOutcome:
        """Query the task until it ends, for at most this time; at least once."""
        clock = asyncio.get_running_loop().time  # the wall clock may be set meanwhile
        until = clock() + left_s
        pause, longest = _MIN_POLL_S, _MAX_POLL_S
        trouble = ""
        while True:
            try:
                fetched = self._fetched_already()
                if fetched is not None and not fetched.error:
                    return outcome_of(fetched, modern=False)
                response = await self._task.send("tasks/get")
                if response.error and fetched is not None:
                    return outcome_of(fetched, modern=False)
                if response.error:
                    ended = self._lost(response, trouble)
                else:
                    trouble = ""
                    state = decoded(response.result, _State) or _State()
                    ended = await self._advance(state)
                    longest = _suggested_s(state)
                if ended is not None:
                    return ended
            except McpError as error:
                if _kind_of(error) in _FINAL:
                    await self.cancel()
                    return failed_outcome(error.message, error.data)
                trouble = error.message  # it may come back
                pause = _MAX_POLL_S
            pause = min(pause * 1.5, longest)  # a task that is short ends early
            await self._wait(min(pause, max(0.0, until - clock())))
            if self._unasked.done():
                return await self._refused(self._unasked.result())
            if clock() >= until:
                return self._timed_out(trouble or "it still reported that it was working")

    async def _wait(self, pause_s: float) -> None:
        """Wait a while, for the result that a legacy server sends by itself, or for a question that
        cannot be passed on."""
        waiting: set[asyncio.Future[Any]] = {self._unasked}
        if self._fetching is not None and not self._fetching.done():
            waiting.add(self._fetching)
        await asyncio.wait(waiting, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)

    async def _advance(self, state: _State) -> RunOutcome | None:
        """Act on the task's state; return the outcome if it has ended."""
        # The words of a task that has ended are those of its result, which passes the links.
        is_over = state.status in ("completed", "failed")
        if state.statusMessage and state.statusMessage != self._message and not is_over:
            self._message = state.statusMessage
            await self._work.progress(state.statusMessage)
        if state.status == "cancelled":
            return RunOutcome(CANCELLED, message=state.statusMessage or "cancelled by the server")
        if is_over:
            return await self._ended(state)
        if state.status == "input_required":
            self._ask(state)
        return None

    async def _ended(self, state: _State) -> RunOutcome:
        if not self._remote.modern:
            return outcome_of(await self._fetched(), modern=False)
        if state.status == "failed":
            error = bytes(state.error) or b'{"code":-32603,"message":"the task failed"}'
            return outcome_of(Response(id=b"0", error=error), modern=True)
        return outcome_of(Response(id=b"0", result=bytes(state.result) or b"{}"), modern=True)

    # Questions.

    def _ask(self, state: _State) -> None:
        """Pass the questions of a server on, each once."""
        if not self._remote.modern:
            self._fetch()
            return
        for key in [key for key in self._asked if key not in state.inputRequests]:
            waiting = self._asked.pop(key)
            if waiting is not None:  # the server has withdrawn it
                waiting.cancel()
        if len(state.inputRequests) > MAX_QUESTIONS:
            self._refuse(NotAccepted(f"its task has more than {MAX_QUESTIONS} at once"))
            return
        for key, question in state.inputRequests.items():
            if key not in self._asked:
                self._asked[key] = self._background.start(self._answer(key, bytes(question)))

    async def _answer(self, key: str, question: bytes) -> None:
        if self._remote.names_servers:
            question = encode(named_question(question, self._remote.server))
        try:
            with self._hold():
                (answer,) = await self._work.ask([question])
                self._asked[key] = None
                await self._task.send("tasks/update", {"inputResponses": {key: Raw(answer)}})
        except NotAccepted as refusal:
            self._refuse(refusal)
        except (McpError, StoreError):
            self._asked.pop(key, None)  # it returns while the server still lacks its answer
        except LeaseLost:
            pass  # the worker stops this task

    def _refuse(self, refusal: NotAccepted) -> None:
        if not self._unasked.done():
            self._unasked.set_result(str(refusal))

    async def _refused(self, why: str) -> RunOutcome:
        """End a task that waits for an answer to a question that cannot be passed on."""
        await self.cancel()
        server = self._remote.server
        words = f"cannot pass on a question of {server}: {why}; its task was cancelled"
        return failed_outcome(words, {"kind": "question", "server": server})

    # Results.

    def _fetch(self) -> "asyncio.Task[Response]":
        if self._fetching is None or (self._fetching.done() and _failed(self._fetching)):
            self._fetching = asyncio.ensure_future(self._task.send("tasks/result", wait=True))
        return self._fetching

    def _fetched_already(self) -> Response | None:
        """Return the result that a legacy server sent while it was queried."""
        fetching = self._fetching
        is_there = fetching is not None and fetching.done() and not _failed(fetching)
        return fetching.result() if fetching is not None and is_there else None

    async def _fetched(self) -> Response:
        return await asyncio.shield(self._fetch())

    # Ends without a result.

    def _timed_out(self, why: str) -> RunOutcome:
        server, limit_s = self._remote.server, self._remote.follow_s
        words = f"{server} did not finish the task within its ttl of {limit_s:g} s: {why}"
        return failed_outcome(words, {"kind": "timeout", "server": server})

    def _lost(self, response: Response, trouble: str) -> RunOutcome | None:
        """Return the end of a task that its server has lost, after a failure if one was seen."""
        if response.code not in _GONE:
            return None
        server = self._remote.server
        words = f"{server} does not know its task any more"
        words += f"; before that: {trouble}" if trouble else "; it may have restarted"
        return failed_outcome(words, {"kind": "forgotten", "server": server})

    async def close(self) -> None:
        """End everything that waits for the server."""
        self._unasked.cancel()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})
        await self._background.close()
        self._task.close()


async def end_remote(remote: RemoteTask, relay: TaskRelay, principal: str) -> None:
    """Request the end of a server's task that nothing follows."""
    task = _ServerTask(remote, relay, principal)
    try:
        await task.cancel()
    finally:
        task.close()


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


def _kind_of(error: McpError) -> str:
    return str(error.data.get("kind", "")) if isinstance(error.data, dict) else ""


def _failed(task: "asyncio.Task[Response]") -> bool:
    return task.cancelled() or task.exception() is not None


def _discard(message: bytes) -> None:
    """Drop a message to the session, which only represents the task's client."""
