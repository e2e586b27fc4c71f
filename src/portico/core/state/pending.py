"""Pending answers, and the steps to take when they arrive."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from inspect import iscoroutine
from typing import Any, Protocol

from portico.core.model.errors import INTERNAL_ERROR, McpError
from portico.core.model.message import Response
from portico.core.model.types import Answer
from portico.core.protocol.codec import error_response, mcp_error_response

Reply = Callable[[Response], None]
Observer = Callable[[Response | None], None]
"""Receives a response, or None for a cancelled call."""


class CancellableWork(Protocol):
    """A running call that can be cancelled."""

    def cancel(self) -> object:
        """Stop the work and drop its result."""
        ...


Step = tuple[Callable[[Response], Response] | None, Observer | None]
"""A step for an answer: a change, or an observer to call."""


class Pending:
    """An answer that needs no task: it calls back once, unless it is cancelled."""

    _reply: Reply | None = None
    response: Response | None = None
    """The answer, once it has arrived."""
    steps: tuple[Step, ...] = ()
    """The remaining steps."""

    def then(self, reply: Reply) -> None:
        """Call this with the answer, immediately if it has arrived."""
        before = self._reply
        if self.response is not None:
            reply(self.response)
        elif before is None:
            self._reply = reply
        else:  # a link may wait for an answer that it also returns

            def reply_to_both(response: Response) -> None:
                before(response)
                reply(response)

            self._reply = reply_to_both

    def arrived(self, response: Response) -> None:
        """Accept the answer, run its steps, and pass it on."""
        steps, self.steps = self.steps, ()
        for change, observer in steps:
            if observer is not None:
                observer(response)
            elif change is not None:
                try:
                    changed = change(response)
                    if type(changed) is not Response:
                        what = type(changed).__name__
                        raise TypeError(f"a link or provider returned {what}, not a Response")
                    response = changed
                except Exception as error:  # noqa: BLE001  (a link may raise anything)
                    response = _failed(response, error)
        self.response = response  # a link may wait for it once more
        reply, self._reply = self._reply, None
        if reply is not None:
            reply(response)

    def cancel(self) -> None:
        """Drop the answer and, where possible, stop the work on it."""
        steps, self.steps = self.steps, ()
        for _, observer in steps:
            if observer is not None:
                observer(None)

    def __await__(self) -> Generator[Any, None, Response]:
        """Wait for the answer, in a coroutine."""
        arrived: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def reply(response: Response) -> None:
            if not arrived.done():  # the task may have been cancelled meanwhile
                arrived.set_result(response)

        self.then(reply)
        try:
            return (yield from arrived)
        except BaseException:
            self.cancel()
            raise


def after(answer: Answer, change: Callable[[Response], Response]) -> Answer:
    """Apply this function to the answer once it has arrived."""
    if type(answer) is Response:
        return change(answer)
    if isinstance(answer, Pending):
        answer.steps = (*answer.steps, (change, None))
        if answer.response is not None:
            answer.arrived(answer.response)
        return answer
    return _changed(answer, change)


def observed(answer: Answer, observer: Observer) -> Answer:
    """Return the same answer; the observer sees it when it arrives or is cancelled."""
    if type(answer) is Response:
        observer(answer)
        return answer
    if isinstance(answer, Pending):
        answer.steps = (*answer.steps, (None, observer))
        if answer.response is not None:
            answer.arrived(answer.response)
        return answer
    return _observed(answer, observer)


def discard(answer: Answer | None) -> None:
    """Drop an unwanted answer, unless it has arrived."""
    if isinstance(answer, Pending):
        answer.cancel()
    elif iscoroutine(answer):
        answer.close()


def _failed(response: Response, error: Exception) -> Response:
    if isinstance(error, McpError):
        return mcp_error_response(response.id, error)
    context = {"message": "a link failed to process an answer", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
    return error_response(response.id, INTERNAL_ERROR, "internal error")


async def _changed(answer: Awaitable[Response], change: Callable[[Response], Response]) -> Response:
    return change(await answer)


async def _observed(answer: Awaitable[Response], observer: Observer) -> Response:
    response: Response | None = None
    try:
        response = await answer
    finally:
        observer(response)
    return response
