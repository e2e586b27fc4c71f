"""Answers that are on their way, and what is done with them when they arrive."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from inspect import iscoroutine
from typing import Any, Protocol

from portico.model.errors import INTERNAL_ERROR, McpError
from portico.model.message import Response
from portico.model.types import Answer
from portico.protocol.codec import error_response, mcp_error_response

Reply = Callable[[Response], None]
Over = Callable[[Response | None], None]
"""Receives an answer, or None for a call that was cancelled."""


class CancellableWork(Protocol):
    """A call under way that can be stopped."""

    def cancel(self) -> object:
        """Nobody wants its answer any more."""
        ...


Step = tuple[Callable[[Response], Response] | None, Over | None]
"""What is done with an answer on its way: it is changed, or somebody is told of it."""


class Pending:
    """An answer on its way that needs no task: it calls back, once, unless it is cancelled."""

    _reply: Reply | None = None
    response: Response | None = None
    """The answer, if it has arrived and nobody had asked for it."""
    steps: tuple[Step, ...] = ()
    """What is still to be done with it."""

    def then(self, reply: Reply) -> None:
        """Call this with the answer: at once, if it has arrived already."""
        if self.response is not None:
            reply(self.response)
        else:
            self._reply = reply

    def arrived(self, response: Response) -> None:
        """Here is the answer: hand it on, once all is done that was to be done with it."""
        steps, self.steps = self.steps, ()
        for change, over in steps:
            if over is not None:
                over(response)
            elif change is not None:
                try:
                    changed = change(response)
                    if type(changed) is not Response:
                        what = type(changed).__name__
                        raise TypeError(f"a link or provider returned {what}, no Response")
                    response = changed
                except Exception as error:  # noqa: BLE001  (a link may raise anything)
                    response = _failed(response, error)
        if self._reply is None:
            self.response = response
        else:
            self._reply(response)

    def cancel(self) -> None:
        """Drop the answer and, where that is possible, stop the work on it."""
        steps, self.steps = self.steps, ()
        for _, over in steps:
            if over is not None:
                over(None)

    def __await__(self) -> Generator[Any, None, Response]:
        """The answer, for a handler that is a coroutine."""
        arrived: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def reply(response: Response) -> None:
            if not arrived.done():  # it may be cancelled, and the task not know it yet
                arrived.set_result(response)

        self.then(reply)
        try:
            return (yield from arrived)
        except BaseException:
            self.cancel()
            raise


def after(answer: Answer, change: Callable[[Response], Response]) -> Answer:
    """The answer as this function changes it, once it has arrived."""
    if type(answer) is Response:
        return change(answer)
    if isinstance(answer, Pending):
        answer.steps = (*answer.steps, (change, None))
        if answer.response is not None:
            answer.arrived(answer.response)
        return answer
    return _changed(answer, change)


def observed(answer: Answer, over: Over) -> Answer:
    """The same answer; the observer is called just before it goes on, or when it is cancelled."""
    if type(answer) is Response:
        over(answer)
        return answer
    if isinstance(answer, Pending):
        answer.steps = (*answer.steps, (None, over))
        if answer.response is not None:
            answer.arrived(answer.response)
        return answer
    return _observed(answer, over)


def discard(answer: Answer | None) -> None:
    """Drop an answer that nobody waits for; nothing happens to one that has arrived."""
    if isinstance(answer, Pending):
        answer.cancel()
    elif iscoroutine(answer):
        answer.close()


def _failed(response: Response, error: Exception) -> Response:
    if isinstance(error, McpError):
        return mcp_error_response(response.id, error)
    context = {"message": "a link failed on an answer", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
    return error_response(response.id, INTERNAL_ERROR, "internal error")


async def _changed(answer: Awaitable[Response], change: Callable[[Response], Response]) -> Response:
    return change(await answer)


async def _observed(answer: Awaitable[Response], over: Over) -> Response:
    response: Response | None = None
    try:
        response = await answer
    finally:
        over(response)
    return response
