"""Calls that run as tasks: their requests in the store, and the runner that makes them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.core.model.context import LOCAL, Context
from portico.core.model.errors import AskError, McpError
from portico.core.model.message import Meta, Request, Response
from portico.core.model.session import Session
from portico.core.model.task_control import RunningTask
from portico.core.model.types import Answer, Handler, LinkedEndpoint
from portico.core.model.version import version_of
from portico.core.protocol.codec import NO_RAW, encode, mcp_error_response, notification
from portico.core.protocol.eras import IDEMPOTENCY_KEY, is_input_required, members, modern_question
from portico.core.protocol.tasks import RELATED
from portico.core.state.client_sessions import SESSIONS
from portico.library.tasks.mcp.task_wire import outcome_of, related
from portico.library.tasks.store.record import NotAccepted, TaskRecord
from portico.library.tasks.worker.work import ORPHANED, RunOutcome, Work

_KEY = IDEMPOTENCY_KEY.encode()
MAX_ROUNDS = 20
_PROGRESS = "notifications/progress"
_ID = b'"task"'
FindEndpoint = Callable[[str], LinkedEndpoint | None]


class StoredCall(Struct, kw_only=True, omit_defaults=True):
    """The input of a task: a call of a tool, and what its client declared."""

    at: str = ""
    """The endpoint that received the call."""
    name: str
    params: Raw
    version: str
    capabilities: Raw
    info: Raw
    names_servers: bool = False
    asked: str = ""
    answers: dict[str, dict[str, Any]] = {}
    """By the place of a link, the answers that it got before its result arrived."""
    session: str = ""
    """The key of its client's session in the store of values; empty if it had none."""


def stored_call(at: str, request: Request, context: Context) -> bytes:
    """Return a call as the input of a task."""
    return encode(kept_call(at, request, context))


def kept_call(at: str, request: Request, context: Context) -> StoredCall:
    """Return what is kept of a call, so that it can be made again."""
    fields = members(request.params)
    for key in ("task", "inputResponses", "requestState"):
        fields.pop(key, None)
    session = context.session
    return StoredCall(
        at=at,
        name=request.name,
        params=Raw(encode(fields)),
        version=request.version.text,
        capabilities=Raw(encode(context_capabilities(request, context))),
        info=Raw(request.meta.client_info or encode(session.client_info if session else {})),
        names_servers=session is not None and session.names_servers,
        asked=request.asked,
        session=SESSIONS.key_of(context),
    )


def context_capabilities(request: Request, context: Context) -> Mapping[str, Any]:
    """Return the capabilities of a request's client."""
    if request.meta.client_capabilities:
        found: dict[str, Any] = msgspec.json.decode(request.meta.client_capabilities)
        return found
    return {} if context.session is None else context.session.capabilities


class RunPeer:
    """The way from a running call to its client: through the task.

    Progress becomes the task's status, a question waits in the task, and log messages are dropped.
    """

    def __init__(
        self,
        work: Work,
        live: Callable[[bytes], None] | None = None,
        refused: Callable[[NotAccepted], None] = lambda _: None,
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`live` sends the params of progress to a legacy client that is still connected.
        `refused` is called for a question that is too large for a task. `hold` counts a question
        while it waits, and raises NotAccepted if there are too many."""
        self._work = work
        self._live = live
        self._refused = refused
        self._hold = hold

    async def notify(self, message: bytes) -> None:
        """Show progress as the task's status."""
        fields = members(message)
        if bytes(fields.get("method", b"")) != b'"%s"' % _PROGRESS.encode():
            return
        params = members(fields.get("params", b""))
        if self._live is not None:
            self._live(encode(params))
        text = params.get("message")
        await self._work.progress(str(msgspec.json.decode(text)) if text else "in progress")

    async def ask(self, method: str, params: bytes) -> bytes:
        """Park a question in the task, and wait for its answer."""
        fields = msgspec.json.decode(params or b"{}", type=dict[str, Any])
        if isinstance(meta := fields.get("_meta"), dict):
            meta.pop(RELATED, None)  # the server's own id of the task
        question = encode({"method": method, "params": modern_question(method, fields)})
        try:
            with self._hold():
                (answer,) = await self._work.ask([question])
        except NotAccepted as refusal:
            self._refused(refusal)
            raise AskError(str(refusal)) from None
        return answer

    async def closed(self) -> None:
        """Wait forever: a task has no connection that could end."""
        await asyncio.get_running_loop().create_future()


class HandlerRun:
    """The task of a handler."""

    def __init__(self, work: Work) -> None:
        self._work = work

    @property
    def id(self) -> str:
        """The id that clients use."""
        return self._work.id

    @property
    def is_cancelled(self) -> bool:
        """True once its client has requested its end."""
        return self._work.is_cancelled

    async def message(self, text: str) -> None:
        """Show clients this text as the task's status."""
        await self._work.progress(text)

    async def supplied_result(self) -> Any:
        """Wait for the result that `server.supply_result` supplies."""
        return await RESULT_INBOX.wait(self.id)


class PlainControl:
    """The control of a call that its server answers with the result."""

    run_of = ""
    is_submission = False
    performs = False
    is_replay = False
    link_answers: dict[str, dict[str, Any]] | None = None
    task: RunningTask | None = None

    async def begin(self) -> RunningTask | None:
        """Return the task, if the call is one."""
        return self.task

    def perform(self, next: Handler, request: Request, context: Context) -> Answer:
        """Make the call."""
        return next(request, context)


class StoredCallControl(PlainControl):
    """The control of a stored call: it is a task from its start."""

    def __init__(self, task: RunningTask) -> None:
        self.task = task
        self.run_of = task.id


class SubmittedCall(PlainControl):
    """The control of a call that was stored, and is made later."""

    is_submission = True

    def __init__(self, task: TaskRecord) -> None:
        self.run_of = task.id


class Replay(PlainControl):
    """The control of a call whose result is there: it passes the links, and nothing is called."""

    performs = is_replay = True

    def __init__(self, response: Response, run_of: str, answers: dict[str, dict[str, Any]]) -> None:
        self._response = response
        self.run_of = run_of
        self.link_answers = answers

    def perform(self, next: Handler, request: Request, context: Context) -> Answer:
        """Return the result as the answer to every call that a link makes."""
        return replace(self._response, id=request.id)


class DelegationControl(PlainControl):
    """The control of a call whose handler stores its task itself, and may wait for its result."""

    def __init__(self, is_wanted: bool, call: StoredCall) -> None:
        self.is_wanted = is_wanted
        """True if the client gets the task in place of the result."""
        self._call = call
        self._answers: dict[str, dict[str, Any]] = {}
        self.link_answers = self._answers
        self.record: TaskRecord | None = None
        """The stored task."""
        self.is_waiting = False
        """True while the handler waits for the result."""
        loop = asyncio.get_running_loop()
        self.result: asyncio.Future[bytes] = loop.create_future()
        """The result of the task, before any link; the handler returns it."""
        self._answer: asyncio.Future[Response | None] = loop.create_future()

    @property
    def call(self) -> StoredCall:
        """The call as its client made it, with the answers that links got so far."""
        return replace(self._call, answers=self._answers)

    async def hand_over(self, result: bytes) -> Response | None:
        """Pass the result to the handler, and return what the links returned; None if the call
        does not wait for it any more."""
        if not self.is_waiting or self.result.done():
            return None
        self.result.set_result(result)
        return await asyncio.shield(self._answer)

    def end(self, response: Response | None) -> None:
        """Accept the answer of the links, if there is one."""
        if not self._answer.done():
            self._answer.set_result(response if self.result.done() else None)


class ResultInbox:
    """Results that another part of the program supplies to waiting handlers."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Any]] = {}

    def open(self, id: str) -> None:
        """Accept a result for a task from now on, before its handler waits for it."""
        self._waiting[id] = asyncio.get_running_loop().create_future()

    def close(self, id: str) -> None:
        """Accept no result for a task any more."""
        future = self._waiting.pop(id, None)
        if future is not None and future.done() and not future.cancelled():
            future.exception()  # retrieved, since the handler may not have waited for it

    async def wait(self, id: str) -> Any:
        """Wait for the result of a task."""
        return await asyncio.shield(self._waiting[id])

    def supply(self, id: str, value: Any) -> bool:
        """Pass a result to the handler of a task, from any thread; False if the task does not run,
        or has a result."""
        future = self._waiting.get(id)
        if future is None or future.done():
            return False

        def settle() -> None:
            if future.done():
                return
            if isinstance(value, BaseException):
                future.set_exception(value)
            else:
                future.set_result(value)

        future.get_loop().call_soon_threadsafe(settle)
        return True


RESULT_INBOX = ResultInbox()
"""Of all tasks of this process, whose ids are unique: a server in a gateway supplies the results of
the gateway's tasks, and does not know where they are kept."""


async def drive(
    handler: Handler, request: Request, context: Context, work: Work, answer: Awaitable[Response]
) -> Response:
    """Await a call to its end. The questions of a modern result wait in the task, and their answers
    continue the call."""
    for _ in range(MAX_ROUNDS):
        try:
            response = await answer
        except McpError as error:
            response = mcp_error_response(request.id, error)
        if not request.version.modern or not is_input_required(response.result):
            return response
        fields = members(response.result)
        questions = members(fields.get("inputRequests", b""))
        answers = await work.ask([bytes(raw) for raw in questions.values()])
        given = {key: Raw(one) for key, one in zip(questions, answers, strict=True)}
        params: dict[str, Any] = {**members(request.params), "inputResponses": given}
        if "requestState" in fields:
            params["requestState"] = fields["requestState"]
        request = replace(request, params=encode(params))
        answer = handler(request, context)
    why = f"the tool still requires input after {MAX_ROUNDS} rounds"
    return mcp_error_response(request.id, McpError(why))


class CallRunner:
    """Makes the calls of tasks, each at the endpoint that received it."""

    is_repeatable = False
    begins_itself = False

    def __init__(self) -> None:
        self.find: FindEndpoint = lambda _: None
        """Returns an endpoint by its name."""
        self.live: dict[str, Callable[[bytes], None]] = {}
        """By task, the function that sends progress to its legacy client."""

    def tell_progress(self, id: str, token: bytes, params: bytes) -> None:
        """Send progress of a task to its legacy client, if that is still connected."""
        send = self.live.get(id)
        if send is not None and token:
            told = {**members(params), "progressToken": Raw(token)}
            send(notification(_PROGRESS, members(related(encode(told), id))))

    async def run(self, work: Work) -> RunOutcome:
        """Make the call."""
        if await work.is_orphan():
            return ORPHANED
        call = msgspec.json.decode(work.input, type=StoredCall)
        context = call_context(call, work.task.principal)
        context.task_control = StoredCallControl(HandlerRun(work))
        RESULT_INBOX.open(work.id)
        try:
            response = await self.make(call, context, work)
        finally:
            RESULT_INBOX.close(work.id)
        return outcome_of(response, modern=version_of(call.version).modern, passed=call.at)

    async def make(self, call: StoredCall, context: Context, work: Work) -> Response:
        """Make a call at the endpoint that received it, through all links, with the key of its
        task. If the context has a wish for a task, its server may create one."""
        request = call_request(call, work.task.idempotency_key)
        if context.task_wish is not None and not request.version.modern:
            request.params = encode({**members(request.params), "task": {}})
        token = request.meta.progress_token
        context.peer = RunPeer(work, lambda params: self.tell_progress(work.id, token, params))
        session = context.session
        assert session is not None
        try:
            endpoint = self.find(call.at)
            if endpoint is None:
                raise McpError(f"cannot call {call.name}: its endpoint does not exist any more")
            answer = endpoint.handle(request, context)
            return await drive(endpoint.handle, request, context, work, answer)
        except McpError as error:
            return mcp_error_response(request.id, error)
        finally:
            session.end()

    async def passed(
        self, call: StoredCall, response: Response, task: TaskRecord, endpoint: LinkedEndpoint
    ) -> Response:
        """Return what the links of an endpoint return for a result that arrived later than the
        answer to its call. They get the answers that they got then: no client waits any more."""
        context = call_context(call, task.principal)
        context.task_control = Replay(response, task.id, call.answers)
        assert context.session is not None
        try:
            return await endpoint.pass_links(call_request(call, task.idempotency_key), context)
        finally:
            context.session.end()


def call_request(call: StoredCall, key: str = "") -> Request:
    """Return the request of a stored call, with the idempotency key of its task."""
    version = version_of(call.version)
    meta = members(members(bytes(call.params)).get("_meta", b""))
    token = bytes(meta.get("progressToken", b""))
    capabilities = bytes(call.capabilities) if version.modern else b""
    info = bytes(call.info) if version.modern else b""
    return Request(
        method="tools/call",
        id=_ID,
        params=with_key(bytes(call.params), key) if key else bytes(call.params),
        version=version,
        meta=Meta(capabilities, info, "", b"" if version.modern else token),
        name=call.name,
        asked=call.asked,
        is_derived=True,
    )


class _WithMeta(Struct):
    meta: Raw = msgspec.field(name="_meta", default=NO_RAW)


_meta_in = msgspec.json.Decoder(_WithMeta).decode
_META = b'"_meta"'
_FIRST = b'{"_meta":{"%b":"%%b"},' % IDEMPOTENCY_KEY.encode()
_NEXT = b'{"%b":"%%b",' % IDEMPOTENCY_KEY.encode()


def with_key(params: bytes, key: str) -> bytes:
    """Return the params of a call with the idempotency key of its task; spliced in, where nothing
    in them can be mistaken for the place."""
    if params[:2] == b'{"' and params.find(b"\\u") < 0 and params.find(_KEY) < 0:
        count = params.count(_META)
        if not count:
            return _FIRST % key.encode() + params[1:]
        meta = bytes(_meta_in(params).meta)  # of the params themselves, not of the arguments
        if count == 1 and meta[:2] == b'{"':
            at = params.index(meta, params.index(_META))
            return params[:at] + _NEXT % key.encode() + params[at + 1 :]
    fields = members(params)
    meta_fields = {**members(bytes(fields.get("_meta", b""))), IDEMPOTENCY_KEY: key}
    return encode({**fields, "_meta": meta_fields})


def call_context(call: StoredCall, principal: str) -> Context:
    """Return the context of a stored call: a client that receives nothing but through its task."""
    version = version_of(call.version)
    session = Session(_discard, principal=principal or LOCAL)
    session.names_servers = call.names_servers
    session.key = call.session
    if not version.modern:
        session.version = version
        session.capabilities = msgspec.json.decode(call.capabilities)
        session.client_info = msgspec.json.decode(call.info)
    return Context(principal=principal or LOCAL, session=session, version=version)


def _discard(message: bytes) -> None:
    """Drop a message that belongs to no request: the task's client may have left."""
