"""A running call that becomes a task: on request of its handler or its server, or after a time."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from portico.core.model.context import Context, Peer
from portico.core.model.errors import AskError, McpError
from portico.core.model.message import Request, Response
from portico.core.model.task_control import CreatedTask, RunningTask
from portico.core.model.types import Answer, Handler
from portico.core.protocol.codec import mcp_error_response
from portico.core.state.pending import Pending
from portico.core.state.store_error import StoreError
from portico.library.tasks.mcp.task_call import RESULT_INBOX, HandlerRun, RunPeer, drive
from portico.library.tasks.store.record import NotAccepted, TaskRecord
from portico.library.tasks.worker.work import RunOutcome, Work

_WITHDRAW_S = 1.0
"""How long a slow client may delay the withdrawal of its questions."""
Run = Callable[[Work], Awaitable[RunOutcome]]
Adopt = Callable[[Run], Awaitable[TaskRecord]]
_NEVER = float("inf")


class Overdue(Protocol):
    """A call that becomes a task once its time is over."""

    def promote(self) -> None:
        """Make it a task."""
        ...


class BudgetTimer:
    """Promotes calls whose time is over. Nearly all are answered long before: a timer for each of
    them would cost more than the rest of their way through the link."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: dict[Overdue, float] = {}
        self._fires_at = _NEVER

    def start(self, call: Overdue, after_s: float) -> None:
        """Promote a call after this time, unless it is stopped before."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # an endpoint may run again, in another loop
            self._loop, self._due, self._fires_at = loop, {}, _NEVER
        when = self._due[call] = loop.time() + after_s
        if when < self._fires_at:
            self._set(loop, when)

    def stop(self, call: Overdue) -> None:
        """Forget a call that was answered."""
        self._due.pop(call, None)

    def _set(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        self._fires_at = when
        loop.call_at(when, self._fire, when)

    def _fire(self, when: float) -> None:
        loop = self._loop
        if loop is not asyncio.get_running_loop() or when != self._fires_at:
            return  # an earlier one was set after it
        now = loop.time()
        overdue = [call for call, at in self._due.items() if at <= now]
        for call in overdue:
            del self._due[call]
        self._fires_at = _NEVER
        if self._due:
            self._set(loop, min(self._due.values()))
        for call in overdue:
            call.promote()


class PromotableCall:
    """One call that may become a task while it runs. A subclass stores it, and answers its
    client."""

    run_of = ""
    is_submission = False
    is_replay = False
    link_answers: dict[str, dict[str, Any]] | None = None
    task: RunningTask | None = None
    """The task, once the call is one."""
    work: Work | None = None
    record: TaskRecord | None = None
    _begun: "asyncio.Future[RunningTask | None] | None" = None
    _promoted: "asyncio.Future[TaskRecord] | None" = None
    _answer: Answer | None = None
    _response: "asyncio.Future[Response] | None" = None

    def __init__(
        self,
        handler: Handler,
        request: Request,
        context: Context,
        after_s: float | None = None,
        timer: BudgetTimer | None = None,
    ) -> None:
        """After `after_s` the call becomes a task by itself, by a timer that calls may share; None
        for never."""
        self._after_s = after_s
        self._timer = timer
        self.performs = context.task_wish is not None
        self.request = request
        self.context = context
        self._handler = handler
        self._peer = _SwitchingPeer(context.peer)

    async def adopt(self, run: Run) -> TaskRecord:
        """Store the call as a task, which the function finishes."""
        raise NotImplementedError

    def answer(self, task: TaskRecord) -> Response:
        """Return what the client gets once the call is a task."""
        raise NotImplementedError

    async def is_over(self, task: TaskRecord) -> bool:
        """Wait, if the client waits for the result of its task; True if there is one."""
        return False

    async def follow(self, created: CreatedTask, response: Response) -> Response:
        """Return the result of the task of its own with which a server answered."""
        raise NotImplementedError

    def outcome(self, response: Response) -> RunOutcome:
        """Return the outcome of the task from the answer of the links."""
        raise NotImplementedError

    def run(self) -> Answer:
        """Make the call."""
        self.context.peer = self._peer
        self.context.task_control = self
        answer = self._answer = self._handler(self.request, self.context)
        if type(answer) is Response:
            return answer
        if isinstance(answer, Pending) and self._after_s is not None:
            return _PromotableAnswer(self, answer, self._after_s, self._timer or BudgetTimer())
        return self._awaited(answer, self._after_s)

    async def _awaited(self, answer: Awaitable[Response], after_s: float | None) -> Response:
        call = self._response = asyncio.ensure_future(_responded(answer, self.request))
        promoted = self._promoted = asyncio.get_running_loop().create_future()
        if self.record is not None:  # at once
            promoted.set_result(self.record)
        waiting: set[asyncio.Future[object]] = {call, promoted}  # type: ignore[arg-type]
        try:
            await asyncio.wait(waiting, timeout=after_s, return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and not promoted.done():
                await self.begin()
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if promoted.done() and await self.is_over(promoted.result()):
                return await asyncio.shield(call)
        except asyncio.CancelledError:
            if self.record is None:
                call.cancel()
            raise
        return self.answer(promoted.result()) if promoted.done() else call.result()

    async def begin(self) -> RunningTask | None:
        """Make the call a task; None if no task can be stored, and the call continues."""
        if self._begun is None:
            self._begun = asyncio.ensure_future(self._begin())
        return await asyncio.shield(self._begun)

    async def _begin(self) -> RunningTask | None:
        try:
            await self.become(self.adopt)
        except (NotAccepted, StoreError):
            return None  # the client waits for the result, as it would without tasks
        return self.task

    async def become(self, adopt: Adopt) -> Work:
        """Make the call a task that is stored in this way, unless it is one."""
        if self.work is not None:
            return self.work
        works: asyncio.Future[Work] = asyncio.get_running_loop().create_future()

        def finish(work: Work) -> Awaitable[RunOutcome]:
            works.set_result(work)  # now: the outcome may be cancelled before it begins
            return self._finish(work)

        record = await adopt(finish)
        work = self.work = await works
        await self._peer.switch(RunPeer(work))
        RESULT_INBOX.open(work.id)
        self.task, self.record = HandlerRun(work), record
        if self._promoted is not None and not self._promoted.done():
            self._promoted.set_result(record)
        return work

    async def _finish(self, work: Work) -> RunOutcome:
        """Finish the task with what the links return."""
        request, context, call = self.request, self.context, self._eventual()
        try:
            response = await drive(self._handler, request, context, work, call)
            return self.outcome(response)
        except asyncio.CancelledError:
            call.cancel()
            if isinstance(self._answer, Pending):
                self._answer.cancel()
            await asyncio.wait({call})
            raise
        finally:
            RESULT_INBOX.close(work.id)

    def _eventual(self) -> "asyncio.Future[Response]":
        """Return the answer of the links, as a future."""
        if self._response is None:
            arrived: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            self._response = arrived
            assert isinstance(self._answer, Pending)
            self._answer.then(partial(_settle, arrived))
        return self._response

    def perform(self, next: Handler, request: Request, context: Context) -> Answer:
        """Make the call of a server that may create a task: its result is the answer."""
        return self._performed(next, request, context)

    async def _performed(self, next: Handler, request: Request, context: Context) -> Response:
        before = context.created
        response = await next(request, context)
        created = context.created
        if created is None or created is before:
            return response
        return await self.follow(created, response)


class _PromotableAnswer(Pending):
    """The answer to a call that needs no coroutine: the result, or the task that it becomes."""

    def __init__(
        self, call: PromotableCall, answer: Pending, after_s: float, timer: BudgetTimer
    ) -> None:
        self._call = call
        self._inner = answer
        self._timer = timer
        timer.start(self, after_s)
        answer.then(self._settle)

    def _settle(self, response: Response) -> None:
        self._timer.stop(self)
        if self._call.record is None:
            self.arrived(response)
            self._call.context.task_control = None  # a cycle that only the collector would free

    def promote(self) -> None:
        """Make the call a task."""
        beginning = asyncio.ensure_future(self._call.begin())
        beginning.add_done_callback(self._begun)

    def _begun(self, beginning: "asyncio.Task[RunningTask | None]") -> None:
        record, has_failed = self._call.record, beginning.cancelled() or beginning.exception()
        if record is not None and not has_failed and self.response is None:
            self.arrived(self._call.answer(record))

    def cancel(self) -> None:
        """Drop the answer, and stop the call unless it is a task by now."""
        self._timer.stop(self)
        super().cancel()
        if self._call.record is None:
            self._inner.cancel()


def _settle(arrived: "asyncio.Future[Response]", response: Response) -> None:
    if not arrived.done():
        arrived.set_result(response)


async def _responded(answer: Awaitable[Response], request: Request) -> Response:
    try:
        return await answer
    except McpError as error:
        return mcp_error_response(request.id, error)


class _SwitchingPeer:
    """The client of a call; once the call is a task, the task."""

    _is_switched = False
    _asking: tuple["asyncio.Future[bytes]", ...] = ()
    """The questions that are with the client."""
    _switched: "asyncio.Future[None] | None" = None
    """Done once the call is a task; there once a question was sent to the client."""

    def __init__(self, peer: Peer | None) -> None:
        self._peer = peer

    async def switch(self, peer: Peer) -> None:
        """Send everything to another peer from now on, also the questions that are open: they are
        withdrawn first."""
        self._peer = peer
        self._is_switched = True
        withdrawn = self._asking
        for asking in withdrawn:
            asking.cancel()
        if self._switched is not None:
            self._switched.set_result(None)
        if withdrawn:  # before the response: the client gets nothing after it
            await asyncio.wait(withdrawn, timeout=_WITHDRAW_S)

    async def notify(self, message: bytes) -> None:
        """Send a notification."""
        if self._peer is not None:
            await self._peer.notify(message)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a question. Its answer comes from the client or, if the call becomes a task before
        that, from the task."""
        if self._peer is None:
            raise AskError("the client cannot receive questions now")
        if self._is_switched:
            return await self._peer.ask(method, params)
        if self._switched is None:
            self._switched = asyncio.get_running_loop().create_future()
        asking = asyncio.ensure_future(self._peer.ask(method, params))
        self._asking = (*self._asking, asking)
        asking.add_done_callback(self._answered)
        waiting: set[asyncio.Future[object]] = {asking, self._switched}  # type: ignore[arg-type]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            asking.cancel()
            await asyncio.wait({asking})
            raise
        if not self._switched.done() or _has_answer(asking):
            return asking.result()
        return await self._peer.ask(method, params)

    def _answered(self, asking: "asyncio.Future[bytes]") -> None:
        self._asking = tuple(one for one in self._asking if one is not asking)
        if not asking.cancelled():
            asking.exception()  # retrieved, since the call may wait for the task by now

    async def closed(self) -> None:
        """Wait until the connection ends."""
        if self._peer is not None:
            await self._peer.closed()

    async def close_stream(self) -> None:
        """Close the stream, if the client can resume it."""
        close_stream = getattr(self._peer, "close_stream", None)
        if close_stream is not None:
            await close_stream()


def _has_answer(asking: "asyncio.Future[bytes]") -> bool:
    """True if the client has answered a question; a client that left has not."""
    if not asking.done() or asking.cancelled():
        return False
    error = asking.exception()
    return error is None or (isinstance(error, AskError) and error.is_answer)
