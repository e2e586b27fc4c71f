"""A running call that becomes a task: on request of its handler, or after a time."""

import asyncio
from collections.abc import Awaitable, Callable

from portico.model.context import Context, Peer
from portico.model.errors import AskError, McpError
from portico.model.message import Request, Response
from portico.model.tasking import RunningTask
from portico.model.types import Handler
from portico.protocol.codec import mcp_error_response
from portico.providers.task_call import SUPPLIED, HandlerTask, TaskPeer, drive
from portico.state.store_error import StoreError
from portico.tasks.record import TaskRecord, TaskRefused
from portico.tasks.work import TaskOutcome, Work

_WITHDRAW_S = 1.0
"""How long a slow client may delay the withdrawal of its questions."""
Adopt = Callable[[Callable[[Work], Awaitable[TaskOutcome]]], Awaitable[TaskRecord]]
"""Stores a call that has begun as a task, which `run` finishes."""
Conclude = Callable[[Work, Response], Awaitable[TaskOutcome]]
"""Returns the outcome of a task from the response to its call."""


class PromotableCall:
    """One call that may become a task while it runs."""

    def __init__(
        self,
        handler: Handler,
        request: Request,
        context: Context,
        adopt: Adopt,
        conclude: Conclude,
    ) -> None:
        """`conclude` turns the response into the outcome of the task."""
        self._handler = handler
        self._request = request
        self._context = context
        self._adopt = adopt
        self._conclude = conclude
        self._peer = _SwitchingPeer(context.peer)
        self._begun: asyncio.Future[RunningTask | None] | None = None
        self._promoted: asyncio.Future[TaskRecord] = asyncio.get_running_loop().create_future()
        self._call: asyncio.Future[Response] | None = None
        self.task: RunningTask | None = None
        """The task, once the call is one."""

    async def run(self, after_s: float | None) -> Response | TaskRecord:
        """Return the response, or the task that the call has become; after this time it becomes
        one by itself."""
        self._context.peer = self._peer
        self._context.tasking = self
        call = self._call = asyncio.ensure_future(self._respond())
        waiting: set[asyncio.Future[object]] = {call, self._promoted}  # type: ignore[arg-type]
        try:
            await asyncio.wait(waiting, timeout=after_s, return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and not self._promoted.done():
                await self.begin()
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not self._promoted.done():
                call.cancel()
            raise
        if self._promoted.done():
            return self._promoted.result()
        return call.result()

    async def begin(self) -> RunningTask | None:
        """Make the call a task; None if no task can be stored, and the call continues."""
        if self._begun is None:
            self._begun = asyncio.ensure_future(self._begin())
        return await asyncio.shield(self._begun)

    async def _begin(self) -> RunningTask | None:
        works: asyncio.Future[Work] = asyncio.get_running_loop().create_future()

        def finish(work: Work) -> Awaitable[TaskOutcome]:
            works.set_result(work)  # now: the outcome may be cancelled before it begins
            return self._finish(work)

        try:
            task = await self._adopt(finish)
        except (TaskRefused, StoreError):
            return None  # the client waits for the result, as it would without tasks
        work = await works
        await self._peer.switch(TaskPeer(work))
        SUPPLIED.open(work.id)
        self.task = HandlerTask(work)
        if not self._promoted.done():
            self._promoted.set_result(task)
        return self.task

    async def _finish(self, work: Work) -> TaskOutcome:
        """Finish the task with the response to the call."""
        assert self._call is not None
        request, context = self._request, self._context
        try:
            response = await drive(self._handler, request, context, work, self._call)
            return await self._conclude(work, response)
        except asyncio.CancelledError:
            self._call.cancel()
            await asyncio.wait({self._call})
            raise
        finally:
            SUPPLIED.close(work.id)

    async def _respond(self) -> Response:
        try:
            return await self._handler(self._request, self._context)
        except McpError as error:
            return mcp_error_response(self._request.id, error)


class _SwitchingPeer:
    """The client of a call; once the call is a task, the task."""

    def __init__(self, peer: Peer | None) -> None:
        self._peer = peer
        self._asking: set[asyncio.Future[bytes]] = set()
        """The questions that are with the client."""
        self._switched: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def switch(self, peer: Peer) -> None:
        """Send everything to another peer from now on, also the questions that are open: they are
        withdrawn first."""
        self._peer = peer
        withdrawn = tuple(self._asking)
        for asking in withdrawn:
            asking.cancel()
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
        if self._switched.done():
            return await self._peer.ask(method, params)
        asking = asyncio.ensure_future(self._peer.ask(method, params))
        self._asking.add(asking)
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
        self._asking.discard(asking)
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
