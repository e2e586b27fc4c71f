"""Forwards a client's request to an upstream and returns the response, across eras if needed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.catalog.attributed_questions import refused_question
from portico.core.catalog.catalog import ListedTool
from portico.core.model.context import Context
from portico.core.model.errors import INVALID_PARAMS, McpError, TargetError
from portico.core.model.message import Request, Response
from portico.core.model.methods import TABLE
from portico.core.model.task_control import CreatedTask
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import (
    asks_in_task,
    is_input_required,
    legacy_params,
    members,
    modern_result,
    same_era_params,
)
from portico.core.protocol.tasks import (
    MIRRORED,
    TASK,
    TASKS,
    Task,
    creates_tasks,
    is_about_task,
    may_create,
    pinned_task,
    supports_task,
    task_id,
    task_of,
    unasked_task,
)
from portico.core.state.memory import LARGE
from portico.upstream.auth.login_state import LOGIN_STATE
from portico.upstream.connections.backoff import CircuitBreaker
from portico.upstream.connections.caller import Call, Caller
from portico.upstream.connections.concurrency_limiter import ConcurrencyLimiter
from portico.upstream.connections.connection import UpstreamConnection
from portico.upstream.connections.connection_pool import LEGACY, MODERN, ConnectionPool
from portico.upstream.connections.direct_call import DirectCall, from_legacy, from_modern, unchanged
from portico.upstream.connections.era_adapter import (
    encode_when_sent,
    first_round,
    run_rounds,
    translate_error,
)
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.request_headers import request_headers
from portico.upstream.connections.session import UpstreamSession
from portico.upstream.connections.suspended_calls import (
    OpenQuestions,
    SuspendedCall,
    SuspendedCalls,
)
from portico.upstream.rpc.pending_request import MAX_TASK_S
from portico.upstream.rpc.rpc_error import ServerError
from portico.upstream.wires.wire import LOGIN, NO_HEADERS, Data

TIMEOUT_KEY = "portico/timeoutS"
"""In a request's `_meta`: how long this call may take."""
_TIMEOUT = TIMEOUT_KEY.encode()
_MAX_SESSIONS = 4
"""The number of consecutive sessions that one call may lose."""
_LOST_KINDS = ("exited", "closed", "network")
_PARAM_PREFIX = "mcp-param-"
_READ_ONLY = ("resources/read", "prompts/get", "completion/complete")
_ROUND_METHODS = ("tools/call", "resources/read", "prompts/get")
FinishTask = Callable[[Request, Context, CreatedTask], Awaitable[Response]]
"""Waits for the end of a task that a server created for a call, and returns the result of the call;
cancelled, it cancels the task."""
LoginMissing = Callable[[Request, Context, TargetError], Awaitable[Response]]
_ROUNDS_REFUSED = ("Handler returned an invalid result", "InputRequiredResult")
"""How the official SDK and FastMCP refuse, in the legacy era, a result that is a question."""
_QUESTION_REFUSED = b"server-initiated requests"
"""Part of how both refuse, in the modern era, a question in the middle of a call."""
_MAX_ROUNDS_KNOWN = 1000


class _Hints(Struct):
    readOnlyHint: bool = False  # noqa: N815  (fields of the wire)
    idempotentHint: bool = False  # noqa: N815


class _Annotated(Struct):
    annotations: _Hints | None = None


class _ToolResult(Struct):
    isError: bool = False  # noqa: N815


class Route:
    """An open session for one client's calls."""

    __slots__ = ("connection", "generation", "is_bridged", "modern", "session")

    def __init__(
        self,
        connection: UpstreamConnection,
        session: UpstreamSession,
        modern: bool,
        generation: int,
    ) -> None:
        self.connection = connection
        self.session = session
        self.generation = generation
        """The generation of the pool in which it was found."""
        self.modern = modern
        self.is_bridged = modern != session.modern


class Relay:
    """The calls of all clients at one upstream."""

    def __init__(
        self,
        server: str,
        policy: UpstreamPolicy,
        pool: ConnectionPool,
        breaker: CircuitBreaker,
        tool: Callable[[str], ListedTool | None],
        asked: Callable[[frozenset[str]], None],
    ) -> None:
        """`tool` returns a tool's definition by name, if it is known; `asked` receives
        additions to the `asks` of an offer."""
        self.name = server
        self._call_s = policy.limits.call_s
        self._is_gateway = policy.is_gateway
        self._hides_tasks = policy.hides_tasks
        self._pool = pool
        self._breaker = breaker
        self._tool = tool
        self._asked = asked
        self._limiter = ConcurrencyLimiter(server, policy.max_in_flight, policy.max_queue)
        self._suspended = SuspendedCalls(policy.suspended_s, policy.max_suspended, server)
        self._closed = False
        self._rounds: set[tuple[str, str]] = set()
        """The tools, prompts and resources whose questions are part of results."""
        self._routes: dict[tuple[bool, bool], Route] = {}
        self.finish_task: FinishTask | None = None
        """Waits for a task of the server that was not requested."""
        self.login_missing: LoginMissing | None = None
        """Answers a call that needs a login first, or raises McpError."""

    async def answer(self, caller: Caller, request: Request, context: Context) -> Response:
        """Return the upstream's response; raises McpError or TargetError if there is none."""
        if self._may_suspend(caller, request):
            suspended = await self._suspended.resume(request, context)
            response = await self._answer_suspended(caller, request, context, suspended)
        else:
            call = Call(caller, request, context)
            response = await self._answer(call, self._fetch(call))
        if not self._refuses_question(caller, request, response):
            return response
        # It failed at its question: only another call can return its result.
        self._asked(frozenset({"legacy"}))
        return await self._answer_suspended(caller, request, context, None)

    async def _answer_suspended(
        self, caller: Caller, request: Request, context: Context, suspended: SuspendedCall | None
    ) -> Response:
        if suspended is None:
            suspended = SuspendedCall(caller, request, context)
            suspended.start(self._fetch(suspended))
        return await self._answer(suspended, suspended.next())

    def _may_suspend(self, caller: Caller, request: Request) -> bool:
        """True if a legacy upstream may ask this modern client during the call."""
        if not request.version.modern or not caller.accepts_questions or self._in_rounds(request):
            return False
        is_modern = self._pool.era(True, caller) == MODERN and self._pool.supports.get(MODERN)
        return not is_modern

    def _refuses_question(self, caller: Caller, request: Request, response: Response) -> bool:
        """True if a modern session cannot send questions to this client, and a legacy one may."""
        said = response.result or response.error
        return (
            said.find(_QUESTION_REFUSED) >= 0
            and self._is_gateway
            and request.version.modern
            and caller.accepts_questions
            and self._pool.supports.get(LEGACY) is not False
            and self._pool.era(True, caller) == MODERN
            and (not response.result or _is_error(response.result))
            and not self._in_rounds(request)
        )

    def _in_rounds(self, request: Request) -> bool:
        """True if its questions are part of results, which only the modern era has."""
        return bool(self._rounds) and (request.method, request.name or request.uri) in self._rounds

    def route(self, caller: Caller, modern: bool) -> Route | None:
        """Return the route of a plain call, if a session is open."""
        kind, generation = (modern, caller.accepts_questions), self._pool.generation
        if caller.session is None:
            # Clients without a session are short-lived, and share a route.
            known = self._routes.get(kind)
        else:
            known = caller.route if isinstance(caller.route, Route) else None
        if known is not None and known.generation == generation and known.modern is modern:
            session = known.session
            if not session.closing and session.exchange.failure is None:
                return known
        found = self._find_route(caller, modern)
        if caller.session is not None:
            caller.route = found
        elif found is not None:
            self._routes[kind] = found
        return found

    def _find_route(self, caller: Caller, modern: bool) -> Route | None:
        connection = self._pool.find_open(caller, modern)
        session = connection.open_session if connection is not None else None
        if connection is None or session is None:
            return None
        if session.modern and (session.exchange.wire.has_headers or not session.may_ask):
            return None  # headers need a lookup, or questions must be refused
        if modern != session.modern and caller.accepts_questions:
            return None  # the call may have to be suspended, or take several rounds
        return Route(connection, session, modern, self._pool.generation)

    def direct_call(
        self, route: Route, caller: Caller, request: Request, context: Context
    ) -> DirectCall | None:
        """Begin a call that only needs forwarding; None if it needs more than that."""
        meta, params = request.meta, request.params
        if meta.progress_token or context.deadline is not None or request.timeout_s:
            return None
        if params.find(_TIMEOUT) >= 0 or self._breaker.failures:
            return None
        if self._rounds and caller.accepts_questions and self._in_rounds(request):
            return None
        if params.find(LOGIN_STATE) >= 0:
            return None  # it waits for a login first
        if params.find(TASK) >= 0 or meta.client_capabilities.find(TASKS) >= 0:
            return None  # a task that it creates must be tracked
        if params.find(b"\\u") >= 0 or meta.client_capabilities.find(b"\\") >= 0:
            return None  # a key may be escaped
        if route.is_bridged and len(params) > LARGE:
            return None  # a large message is translated only when it is sent
        translate = unchanged
        if route.is_bridged and not route.modern:
            params, translate = first_round(params, route.session, caller), from_modern
        elif route.is_bridged:
            if meta.log_level and not route.connection.logs_at(meta.log_level):
                return None  # the upstream's log level must be set first
            params, translate = legacy_params(params, b""), from_legacy
        limiter, breaker = self._limiter, self._breaker
        if limiter.used >= limiter.limit:
            return None
        limiter.used += 1
        call = Call(caller, request, context)
        direct = DirectCall(
            call,
            self._call_s,
            route.connection,
            route.session,
            limiter,
            breaker,
            self._continue,
            translate,
        )
        if direct.begin(params):
            return direct
        self._limiter.release()
        return None

    def _continue(
        self, call: Call, session: UpstreamSession, error: bytes | TargetError | ServerError
    ) -> Callable[[], Awaitable[Response]] | None:
        """Return how a direct call continues that has no result yet; None if it has ended."""
        if isinstance(error, bytes):
            self._note_unasked(session, call, error)
            return None if call.unasked is None else lambda: self._finish_unasked(call)
        if isinstance(error, ServerError):
            if not self._refuses_round(call, error):
                return None
            return lambda: self._answer(call, self._fetch_round(call, error))
        login_missing = self.login_missing
        if error.kind == LOGIN and login_missing is not None:
            return lambda: login_missing(call.request, call.context, error)
        if not self._may_repeat(call, error):
            return None
        return lambda: self._answer(call, self._fetch(call, retry=False))

    def close(self) -> None:
        """Cancel all suspended calls."""
        self._closed = True
        self._suspended.close()

    @property
    def suspended(self) -> int:
        """The number of calls that wait for a client's answers."""
        return len(self._suspended)

    async def _answer(self, call: Call, outcome: Awaitable[bytes | OpenQuestions]) -> Response:
        """Return the response, after the client has received all earlier notifications."""
        try:
            result = await outcome
        except ServerError as error:
            await call.outbox.flush()
            return Response(id=call.request.id, error=error.raw, code=error.code)
        await call.outbox.flush()
        if call.missing is not None:
            raise call.missing
        if call.unasked is not None:
            return await self._finish_unasked(call)
        if isinstance(result, OpenQuestions):
            assert isinstance(call, SuspendedCall)
            result = await self._suspended.suspend(call, result)
        return Response(id=call.request.id, result=result)

    async def _fetch(self, call: Call, retry: bool = True) -> bytes:
        """Return the raw result in the client's era; retried once if `retry` and harmless."""
        try:
            return await self._fetch_result(call, retry)
        except ServerError as error:
            if not self._refuses_round(call, error):
                raise
            return await self._fetch_round(call, error)

    async def _fetch_result(self, call: Call, retry: bool) -> bytes:
        timeout = self._timeout(call)
        is_trial = self._breaker.check()
        try:
            await self._enter(call, timeout)
            try:
                for _ in range(_MAX_SESSIONS):
                    try:
                        return await self._try(call, timeout)
                    except TargetError as error:
                        if error.kind == "session" and not self._closed:
                            continue  # the call has not run
                        if not retry or not self._may_repeat(call, error):
                            raise
                        retry = False
                return await self._try(call, timeout)
            finally:
                self._limiter.release()
        finally:
            if is_trial:
                self._breaker.cancel_trial()

    async def _enter(self, call: Call, timeout: float) -> None:
        """Wait for a slot; a call that has become a task meanwhile waits for as long as it may."""
        try:
            await self._limiter.enter(timeout)
        except TargetError as error:
            if error.kind != "timeout" or timeout >= MAX_TASK_S or not call.is_task():
                raise
            await self._limiter.enter(MAX_TASK_S)

    async def _try(self, call: Call, timeout: float) -> bytes:
        request = call.request
        modern, task = request.version.modern, pinned_task(request.method, request.params)
        connection = None
        if call.caller.accepts_questions and self._in_rounds(request):
            connection = await self._pool.begin_modern()
        if connection is None:
            connection = await self._pool.begin_call(call.caller, modern, task)
        answered = False
        try:
            session = await connection.session()
            level = request.meta.log_level
            if level and not session.modern and not connection.logs_at(level):
                with contextlib.suppress(McpError):  # the call does not depend on the log level
                    await connection.set_level(level)
                if not task and not self._pool.is_suitable(connection, call.caller, modern):
                    why = f"{self.name} is no longer shared"
                    raise TargetError(why, kind="session", server=self.name)
            if session.awaits_roots:
                await session.wait_for_roots(call, timeout)
            try:
                failures = self._breaker.failures
                result = await self._run(session, call, timeout)
            except TargetError as error:
                # A timeout shorter than the default is not a fault of the upstream.
                if error.kind != "timeout" or timeout >= self._call_s:
                    self._breaker.call_failed(error, failures)
                raise
            answered = True
            self._track_task(session, call, result)
        except McpError as error:
            answered = True
            if task and isinstance(error, ServerError):
                _note_error(session, request.method, task, error)
            raise
        else:
            return result
        finally:
            connection.end(answered)
            self._pool.release(connection)

    def _refuses_round(self, call: Call, error: ServerError) -> bool:
        """True if a legacy session refused a question that is part of a result."""
        request = call.request
        return (
            call.caller.accepts_questions
            and request.method in _ROUND_METHODS
            and any(words in error.message for words in _ROUNDS_REFUSED)
            and self._is_gateway
            and self._pool.supports.get(MODERN) is not False
            and self._pool.era(request.version.modern, call.caller) != MODERN
            and not self._in_rounds(request)
        )

    async def _fetch_round(self, call: Call, error: ServerError) -> bytes:
        """Run a call in the modern era, as a round may run again; raises the error without one."""
        connection = None
        with contextlib.suppress(TargetError):
            connection = await self._pool.begin_modern()
        if connection is None:
            raise error
        connection.end(answered=True)
        if len(self._rounds) >= _MAX_ROUNDS_KNOWN:
            self._rounds.clear()
        self._rounds.add((call.request.method, call.request.name or call.request.uri))
        return await self._fetch(call, retry=False)

    def _track_task(self, session: UpstreamSession, call: Call, result: bytes) -> None:
        """Track the state of tasks: while one is open, its upstream is not idle."""
        request, context = call.request, call.context
        method, params = request.method, request.params
        if is_about_task(method):
            task = task_of(method, params, result)
            if task is None and method == "tasks/cancel" and request.is_derived:
                task = Task(task_id(params), is_over=True)  # acknowledged; it is queried no more
            # A request may name any task; only those created here, or followed by us, count.
            if task is not None and (task.id in session.tasks or request.is_derived):
                # The state of a legacy task does not include its result.
                is_fetched = session.modern or method != "tasks/get"
                session.tasks.note(task, is_fetched=is_fetched)
        elif context.task_wish or may_create(params, request.meta.client_capabilities):
            task = task_of(method, params, result)
            if task is not None and call.unasked is None:
                session.tasks.note(task, is_fetched=False)
                context.created = CreatedTask(task.id, session.modern, task.ttl_s)
                if request.meta.progress_token:
                    session.keep_progress(call)

    # Tasks that were not requested.

    def _note_unasked(self, session: UpstreamSession, call: Call, result: bytes) -> None:
        """Note a task that was sent in place of a result to a client that requested none; a client
        that is alone with a server of its era gets it as it is."""
        request = call.request
        if call.context.task_wish is not None or is_about_task(request.method):
            return
        if not self._hides_tasks and session.modern == request.version.modern:
            return
        task = unasked_task(result)
        if task is None:
            return
        call.unasked = CreatedTask(task.id, session.modern, task.ttl_s)
        if task.id:
            session.tasks.note(task, is_fetched=False)

    async def _finish_unasked(self, call: Call) -> Response:
        """Wait for the end of a task that was sent in place of a result, for as long as the call
        may take; then it is cancelled."""
        created, finish = call.unasked, self.finish_task
        assert created is not None
        if not created.id or finish is None or call.request.method != "tools/call":
            why = f"{self.name} answered {call.request.method} with a task that was not requested"
            raise TargetError(why, kind="protocol", server=self.name)
        timeout = self._timeout(call)
        finishing = asyncio.ensure_future(finish(call.request, call.context, created))
        try:
            done, _ = await asyncio.wait({finishing}, timeout=timeout)
            if not done and call.is_task():
                done, _ = await asyncio.wait({finishing}, timeout=MAX_TASK_S)
            if not done:
                why = f"{self.name} did not finish its task within {timeout:g} s"
                raise TargetError(why, kind="timeout", server=self.name)
            return finishing.result()
        finally:
            if not finishing.done():
                finishing.cancel()
                await asyncio.wait({finishing})

    async def _run(self, session: UpstreamSession, call: Call, timeout: float) -> bytes:
        modern = call.request.version.modern
        try:
            if session.modern == modern:
                id = session.exchange.next_id()
                params = encode_when_sent(call, lambda: same_era_params(call.request, id))
                result = await self._send(session, call, id, params, timeout)
                if modern and not session.may_ask:
                    _check_no_question(call.request.method, result, session.name)
                return result
            if session.modern:
                return await run_rounds(
                    session,
                    call,
                    lambda id, params: self._send(session, call, id, params, timeout),
                )
            id = session.exchange.next_id()
            params = encode_when_sent(call, lambda: self._legacy_params(session, call, id))
            result = await self._send(session, call, id, params, timeout)
            if call.context.task_wish is not None and task_of(call.request.method, b"", result):
                return result  # not a result yet
            return modern_result(call.request.method, result, encode(session.server.info))
        except ServerError as error:
            if session.modern == modern or not error.raw:
                raise
            return translate_error(call, error)

    def _legacy_params(self, session: UpstreamSession, call: Call, id: bytes) -> bytes:
        """Return a modern client's params for a legacy server; a tool that can run as a task does,
        if the client can follow it."""
        params = legacy_params(call.request.params, id)
        if call.context.task_wish is None or not creates_tasks(session.server.capabilities):
            return params
        tool = self._tool(call.request.name)
        if tool is None or not supports_task(tool.raw):
            return params
        return encode({**members(params), "task": {}})

    async def _send(
        self, session: UpstreamSession, call: Call, id: bytes, params: Data, timeout: float
    ) -> bytes:
        request, headers = call.request, NO_HEADERS
        if session.modern and session.exchange.wire.has_headers:
            headers = self._headers(session, call)
        result = await session.request(
            request.method, params, timeout=timeout, id=id, call=call, headers=headers
        )
        self._note_unasked(session, call, result)
        return result

    def _timeout(self, call: Call) -> float:
        timeout = call.request.timeout_s or self._call_s
        if _TIMEOUT in call.request.params:
            meta = members(members(call.request.params).get("_meta", b""))
            with contextlib.suppress(msgspec.DecodeError):
                requested = msgspec.json.decode(meta.get(TIMEOUT_KEY, b"0"), type=float)
                if requested > 0:
                    timeout, call.is_limited = requested, True
        if call.context.deadline is not None:
            left = call.context.deadline - asyncio.get_running_loop().time()
            timeout = min(timeout, max(left, 0.001))
        return timeout

    def _may_repeat(self, call: Call, error: TargetError) -> bool:
        """True if the call cannot have run, or may safely run twice."""
        if self._closed:
            return False
        if error.kind == "session":
            return True
        if error.kind not in _LOST_KINDS:
            return False
        if call.request.method in _READ_ONLY:
            return True
        if call.request.method != "tools/call":
            return False
        tool = self._tool(call.request.name)
        found = None if tool is None else decoded(tool.raw, _Annotated)
        hints = None if found is None else found.annotations
        return hints is not None and (hints.readOnlyHint or hints.idempotentHint)

    def _headers(self, session: UpstreamSession, call: Call) -> dict[str, str]:
        """Return the headers of a modern request, with the client's own param headers."""
        request = call.request
        meaning = TABLE.get((request.method, session.server.version))
        params: dict[str, Any] = {}
        if meaning is not None and meaning.mirrored:
            params[meaning.mirrored] = getattr(request, meaning.mirrored)
        if request.method in MIRRORED:
            params[MIRRORED[request.method]] = task_id(request.params)
        given = call.context.headers
        if given is not None and request.version.modern:
            headers = request_headers(request.method, params, session.server.version)
            headers |= {k: v for k, v in given.items() if k.startswith(_PARAM_PREFIX)}
            return headers
        tool = self._tool(request.name) if request.method == "tools/call" else None
        declared = tool.header_params if tool is not None else ()
        if declared:
            params["arguments"] = request.decode().get("arguments")
        return request_headers(request.method, params, session.server.version, declared)


def _is_error(result: bytes) -> bool:
    found = decoded(result, _ToolResult)
    return found is not None and found.isError


def _note_error(session: UpstreamSession, method: str, task: str, error: ServerError) -> None:
    """Record that the upstream answered a request about a task with an error."""
    if method == "tasks/result" and task in session.tasks:
        session.tasks.note(Task(task, is_over=True))  # the error is its outcome
    elif method == "tasks/get" and error.code == INVALID_PARAMS:
        session.tasks.forget(task)


def _check_no_question(method: str, result: bytes, server: str) -> None:
    """Raise McpError for a question of a server that may not ask."""
    if is_input_required(result) or asks_in_task(method, result):
        data = {"kind": "question", "server": server}
        raise McpError(refused_question(method, server), data=data)
