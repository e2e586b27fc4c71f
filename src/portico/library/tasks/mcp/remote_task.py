"""Follows tasks that servers created themselves; `following.py` queries one until it ends.

The task of a server at a URL is queried again after a restart of Portico, so another worker can
continue it. That of a child process ends with the process. A task that resumes another makes its
call again, and follows the task that the server creates for it.
"""

import asyncio
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.task_control import CreatedTask, TaskRequest
from portico.core.model.types import Answer, Handler
from portico.core.model.version import version_of
from portico.core.protocol.codec import decoded, encode
from portico.core.state.background import Background
from portico.core.state.store_error import StoreError
from portico.library.tasks.mcp.following import (
    Following,
    QuestionLimits,
    RemoteTask,
    TaskRelay,
    end_remote,
)
from portico.library.tasks.mcp.task_call import (
    HandlerRun,
    StoredCallControl,
    call_context,
    kept_call,
)
from portico.library.tasks.mcp.task_wire import late_response, outcome_of
from portico.library.tasks.store.record import INTERRUPTED, TaskRecord
from portico.library.tasks.worker.work import ORPHANED, RunOutcome, Work, failed_outcome

if TYPE_CHECKING:
    from portico.library.tasks.mcp.task_host import TaskHost

_MAX_NOTE = 4000
"""Characters of a note; the store cuts off what exceeds its limit."""
_INFO = {"name": "portico", "version": "0"}


class _Attempt(Struct, omit_defaults=True):
    """The note of a task that makes its call again: the server's new task, once there is one."""

    task: str
    """The task that made the call; a task that resumes it gets a copy of the note."""
    at: float = 0.0
    """When the server's task was created, by the wall clock."""
    id: str = ""
    modern: bool = False
    ttl_s: float | None = None


def remote_input(
    at: str,
    server: str,
    created: CreatedTask,
    request: Request,
    context: Context,
    *,
    names_servers: bool,
) -> bytes:
    """Return the input of a task that follows one that a server created for a call."""
    session = context.session
    info = request.meta.client_info or encode((session.client_info if session else None) or _INFO)
    fields = asdict(kept_call(at, request, context))
    fields |= {"info": Raw(info), "names_servers": names_servers}
    remote = RemoteTask(
        server=server, id=created.id, modern=created.modern, ttl_s=created.ttl_s, **fields
    )
    return encode(remote)


class FollowRunner:
    """Follows the tasks of servers."""

    is_repeatable = True
    begins_itself = False

    def __init__(
        self,
        relay_of: Callable[[RemoteTask], TaskRelay | None],
        is_child: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`relay_of` finds the server of a task. `is_child` is true for a server that is a process
        of this Portico: it ends with Portico, and its tasks end with it."""
        self._relay_of = relay_of
        self._is_child = is_child
        self._background = Background()
        self._questions = QuestionLimits()
        self.host: TaskHost | None = None
        """Makes the calls of tasks that are resumed, and passes results through the links."""

    def outlives(self, server: str) -> bool:
        """True if the tasks of a server outlive this process."""
        return not self._is_child(server)

    async def run(self, work: Work) -> RunOutcome:
        """Continue a task of an earlier process, or make the call of one that is resumed."""
        remote, since = _decode(work.input), work.task.created_at
        is_orphan = await work.is_orphan()
        if work.task.resumes:
            attempt = _attempt_of(work.task)
            if attempt is None:
                return ORPHANED if is_orphan else await self._call_again(remote, work)
            if not attempt.id:
                words = f"the process that called {remote.name} ended before it had an answer"
                return RunOutcome(INTERRUPTED, message=f"interrupted: {words}")
            remote = remote.of(attempt.id, attempt.modern, attempt.ttl_s)
            since = attempt.at
        if is_orphan:
            self.abandon(encode(remote), work.task.principal)
            return ORPHANED
        if self._is_child(remote.server):
            words = f"the process of {remote.server} that ran the task ended before the task did"
            return RunOutcome(INTERRUPTED, message=f"interrupted: {words}")
        left_s = since + remote.follow_s - time()
        outcome = await self._follow(remote, work, min(max(left_s, 0.0), remote.follow_s))
        return outcome if self.host is None else await self.host.passed(remote, outcome, work.task)

    async def follow(self, input: bytes, work: Work) -> RunOutcome:
        """Follow the task that an input describes, which its server has created just now."""
        remote = _decode(input)
        return await self._follow(remote, work, remote.follow_s)

    def abandon(self, input: bytes, principal: str) -> None:
        """Cancel a server's task that could not be stored, in the background."""
        remote = _decode(input)
        relay = self._relay_of(remote)
        if relay is not None:
            self._background.start(end_remote(remote, relay, principal))

    async def _call_again(self, remote: RemoteTask, work: Work) -> RunOutcome:
        """Make a call again, and follow the task that its server creates for it, if it does."""
        assert self.host is not None
        work.is_pinned = True
        await work.annotate(encode(_Attempt(work.id)).decode())
        context = call_context(remote, work.task.principal)
        context.task_wish = TaskRequest()
        context.task_control = again = _CallAgain(self, remote, work)
        try:
            response = await self.host.calls.make(remote, context, work)
        except asyncio.CancelledError:
            if context.created is not None and not again.is_following:  # just before it
                new = again.remote_of(context.created)
                self.abandon(encode(new), work.task.principal)
            raise
        if again.ended is not None and again.ended.payload is None:
            return again.ended
        return outcome_of(response, modern=version_of(remote.version).modern, passed=remote.at)

    async def _follow(
        self, remote: RemoteTask, work: Work, left_s: float, attempt: _Attempt | None = None
    ) -> RunOutcome:
        relay = self._relay_of(remote)
        if relay is None:
            return failed_outcome(f"the server {remote.server!r} is not configured any more")
        following = Following(remote, relay, work, self._questions)
        is_child = self._is_child(remote.server)
        try:
            if attempt is not None:
                work.is_pinned = not await _keep(attempt, work) or is_child
            return await following.run(left_s)
        except asyncio.CancelledError:
            # The lost task of a child is interrupted: it ended with its process.
            if work.is_cancelled or (work.is_lost and is_child):
                await following.cancel()
            raise
        finally:
            await following.close()


class _CallAgain(StoredCallControl):
    """The control of a call that is made again: the links get the result of the server's task."""

    performs = True

    def __init__(self, runner: FollowRunner, remote: RemoteTask, work: Work) -> None:
        super().__init__(HandlerRun(work))
        self._runner = runner
        self._remote = remote
        self._work = work
        self.is_following = False
        self.ended: RunOutcome | None = None

    def remote_of(self, created: CreatedTask) -> RemoteTask:
        """Return the input of the task that follows the server's new one."""
        return self._remote.of(created.id, created.modern, created.ttl_s)

    def perform(self, next: Handler, request: Request, context: Context) -> Answer:
        """Make the call, and follow the task that its server creates."""
        return self._performed(next, request, context)

    async def _performed(self, next: Handler, request: Request, context: Context) -> Response:
        response = await next(request, context)
        created = context.created
        if created is None or self.is_following:
            return response
        self.is_following = True
        new = self.remote_of(created)
        attempt = _Attempt(self._work.id, time(), created.id, created.modern, created.ttl_s)
        self.ended = await self._runner._follow(new, self._work, new.follow_s, attempt)
        return late_response(request, self.ended, context.server_info)


_decode = msgspec.json.Decoder(RemoteTask).decode


def _attempt_of(task: TaskRecord) -> _Attempt | None:
    """Return how far a task has come with its call; None if it has not made it."""
    attempt = decoded(task.note.encode(), _Attempt)
    return attempt if attempt is not None and attempt.task == task.id else None


async def _keep(attempt: _Attempt, work: Work) -> bool:
    """Note the new task of a server; False if no other process can continue it."""
    note = encode(attempt).decode()
    if len(note) > _MAX_NOTE:
        return False
    try:
        await work.annotate(note)
    except StoreError:
        return False
    return True
