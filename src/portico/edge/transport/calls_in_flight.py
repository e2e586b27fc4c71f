"""The calls and questions pending on one connection or in one legacy session."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.core.model.errors import INTERNAL_ERROR, INVALID_REQUEST, AskError
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer
from portico.core.protocol.codec import (
    cancelled_id,
    encode,
    error_response,
    is_id,
    notification,
    read_error,
    request_message,
)
from portico.core.protocol.inbound import ClientAnswer
from portico.core.state.pending import CancellableWork, Pending, Reply
from portico.edge.transport.eager_start import start_now

_BACKSLASH = ord("\\")


class Question(Struct, frozen=True):
    """A request from us to the client, and its pending answer."""

    message: bytes
    cancellation: bytes
    """The notification that cancels the question."""
    answer: "asyncio.Future[bytes]"


class CallsInFlight:
    """The calls in flight and the unanswered questions of one connection or legacy session."""

    def __init__(self) -> None:
        self.question_prefix = "portico"
        """The prefix of our questions' ids. The next owner to serve this client uses another one,
        because answers to earlier questions may still arrive."""
        self.running: dict[bytes, CancellableWork] = {}
        """The calls in flight, by id."""
        self._idle: asyncio.Future[None] | None = None
        self._cancelled: set[asyncio.Task[None]] = set()
        self.questions: dict[bytes, asyncio.Future[bytes]] = {}
        self._question_count = 0
        self._notification_count = 0

    def start(
        self,
        request: Request,
        work: Callable[[], Coroutine[Any, Any, None]],
        over: Callable[[], None] | None = None,
        *,
        now: bool = False,
    ) -> Response | None:
        """Run the work for a request as a task that can be cancelled by its id.

        Returns a refusal instead if the id is already in flight. `over` is called when the task is
        done, even if it was cancelled before its first step. `now` runs the task up to its first
        wait before this returns.
        """
        key = request.id or self._notification_key()
        if _BACKSLASH in key:
            key = id_key(key)
        if key in self.running:
            return duplicate_id_error(request.id)
        task = start_now(work()) if now else asyncio.create_task(work())
        if task.done():
            if task.cancelled() or task.exception() is not None:
                self._report_failure(task)
            if over is not None:
                over()
            return None
        self.running[key] = task
        task.add_done_callback(lambda done: self._on_done(key, done))
        if over is not None:
            task.add_done_callback(lambda _: over())
        return None

    def register(self, id: bytes, running: CancellableWork) -> None:
        """Let a call be cancelled by its id, until `release_id`."""
        self.running[id_key(id) if _BACKSLASH in id else id] = running

    def reply_later(self, request: Request, pending: Pending, reply: Reply) -> None:
        """Reply when a pending answer arrives; until then it can be cancelled by its id."""
        key = request.id
        if _BACKSLASH in key:
            key = id_key(key)

        def answered(response: Response) -> None:
            self._remove(key)
            reply(response)

        self.running[key] = pending
        pending.then(answered)

    def check_duplicate(self, request: Request) -> Response | None:
        """Return a refusal if the id is already in flight: its responses would be ambiguous."""
        if not self.running or id_key(request.id) not in self.running:
            return None
        return duplicate_id_error(request.id)

    def cancel(self, notice: Request) -> None:
        """Cancel the call that a `notifications/cancelled` names, if it is still running."""
        key = id_key(cancelled_id(notice.params))
        running = self.running.get(key) if key else None
        if running is not None:
            self._remove(key)
            if isinstance(running, asyncio.Task):
                self._cancelled.add(running)
            running.cancel()

    async def await_answer(self, answer: Answer) -> Response:
        """Return the response to a request that `start` runs, or raise CancelledError if it was
        cancelled, even if its handler ignored that."""
        response = await answer
        if asyncio.current_task() in self._cancelled:
            raise asyncio.CancelledError
        return response

    def release_id(self, id: bytes) -> None:
        """Allow an id to be reused: its response is about to be written."""
        if id:
            self._remove(id_key(id) if _BACKSLASH in id else id)

    def question(self, method: str, params: bytes) -> Question:
        """Create a request to the client, with an id of ours."""
        self._question_count += 1
        id = f'"{self.question_prefix}-{self._question_count}"'.encode()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.questions[id] = answer
        answer.add_done_callback(lambda _: self.questions.pop(id, None))
        cancellation = notification("notifications/cancelled", {"requestId": Raw(id)})
        return Question(request_message(method, params, id), cancellation, answer)

    def settle(self, answer: ClientAnswer) -> None:
        """Pass a client's answer to the handler that awaits it; ignore one that matches nothing."""
        future = self.questions.get(id_key(answer.id))
        if future is None or future.done():
            return
        if answer.result:
            future.set_result(answer.result)
            return
        unreadable = (INTERNAL_ERROR, "the client returned an unreadable error", None)
        code, message, data = read_error(answer.error) or unreadable
        words = message or "the client returned an error"
        future.set_exception(AskError(words, code, data, is_answer=True))

    async def wait_idle(self) -> None:
        """Wait until no call is in flight."""
        while self.running:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def abandon(self) -> list[bytes]:
        """Cancel all calls and return their ids; none of them gets a response."""
        ids = [key for key in self.running if is_id(key)]
        self._cancelled.update(
            running for running in self.running.values() if isinstance(running, asyncio.Task)
        )
        self.close()
        return ids

    def close(self) -> None:
        """Cancel all calls and fail all questions."""
        for key, running in tuple(self.running.items()):
            running.cancel()
            if not isinstance(running, asyncio.Task):
                self._remove(key)
        self.fail_questions()

    def fail_questions(self) -> None:
        """Fail all questions: the client can no longer answer."""
        for future in tuple(self.questions.values()):
            if not future.done():
                future.set_exception(AskError("the client disconnected"))
                future.exception()  # mark it retrieved: its handler may already be cancelled

    def _notification_key(self) -> bytes:
        """Return a key for a running notification; it cannot equal an id."""
        self._notification_count += 1
        return b"notice %d" % self._notification_count

    def _remove(self, key: bytes) -> None:
        self.running.pop(key, None)
        if not self.running and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _on_done(self, key: bytes, task: "asyncio.Task[None]") -> None:
        self._cancelled.discard(task)
        if self.running.get(key) is task:
            self._remove(key)
        self._report_failure(task)

    def _report_failure(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # `Endpoint.handle` does not raise, so the write failed: the client disconnected.
            loop = asyncio.get_running_loop()
            if not isinstance(error, ConnectionError):
                loop.call_exception_handler({"message": "a call failed", "exception": error})


def reply_with(answer: Awaitable[Response], reply: Reply) -> CancellableWork:
    """Send the answer when it arrives, and return the work that can be cancelled until then."""
    if isinstance(answer, Pending):
        answer.then(reply)
        return answer
    return start_now(_await_and_reply(answer, reply))


async def _await_and_reply(answer: Awaitable[Response], reply: Reply) -> None:
    reply(await answer)


def id_key(raw: bytes) -> bytes:
    """Return an id in the one spelling that equal ids share."""
    if _BACKSLASH not in raw:
        return raw
    try:
        return encode(msgspec.json.decode(raw))
    except msgspec.DecodeError:
        return raw


def shutdown_error(id: bytes) -> Response:
    """Return the error for a call that arrives during a drain, or outlasts it."""
    return error_response(id, INTERNAL_ERROR, "the server is shutting down", {"kind": "closed"})


def duplicate_id_error(id: bytes) -> Response:
    """Return the refusal of a request whose id is already in flight."""
    shown = id.decode()[:80]
    return error_response(id, INVALID_REQUEST, f"id {shown} is already in flight")
