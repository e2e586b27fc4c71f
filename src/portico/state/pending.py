"""Answers that are on their way, and what is done with them when they arrive."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from inspect import iscoroutine
from typing import Any, Protocol

from portico.model.errors import INTERNAL_ERROR
from portico.model.message import Response
from portico.model.types import Answer
from portico.protocol.codec import error_response
from portico.state.eager import start_now

Reply = Callable[[Response], None]
Over = Callable[[Response | None], None]
"""Receives an answer, or None for a call that was cancelled."""


class Running(Protocol):
    """A call under way that can be stopped."""

    def cancel(self) -> object:
        """Nobody wants its answer any more."""
        ...


class Pending:
    """An answer on its way that needs no task: it calls back, once, unless it is cancelled."""

    __slots__ = ()

    def then(self, reply: Reply) -> None:
        """Call this with the answer: at once, if it has arrived already."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Drop the answer and, where that is possible, stop the work on it."""
        raise NotImplementedError

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


def reply_with(answer: Awaitable[Response], reply: Reply) -> Running:
    """Have the answer sent when it arrives; what can be cancelled until then."""
    if isinstance(answer, Pending):
        answer.then(reply)
        return answer
    return start_now(_replied(answer, reply))


async def _replied(answer: Awaitable[Response], reply: Reply) -> None:
    reply(await answer)


def after(answer: Answer, change: Callable[[Response], Response]) -> Answer:
    """The answer as this function changes it, once it has arrived."""
    if type(answer) is Response:
        return change(answer)
    if isinstance(answer, Pending):
        return _Changed(answer, change)
    return _changed(answer, change)


def observed(answer: Answer, over: Over) -> Answer:
    """The same answer; the observer is called just before it goes on, or when it is cancelled."""
    if type(answer) is Response:
        over(answer)
        return answer
    if isinstance(answer, Pending):
        return _Observed(answer, over)
    return _observed(answer, over)


def discard(answer: Answer | None) -> None:
    """Drop an answer that nobody waits for; nothing happens to one that has arrived."""
    if isinstance(answer, Pending):
        answer.cancel()
    elif iscoroutine(answer):
        answer.close()


class Onward(Pending):
    """Another pending answer, with something to do when it arrives."""

    __slots__ = ("_inner", "_reply")

    def __init__(self, inner: Pending) -> None:
        self._inner = inner
        self._reply: Reply | None = None

    def then(self, reply: Reply) -> None:
        """Call this with the answer: at once, if it has arrived already."""
        self._reply = reply
        self._inner.then(self._arrived)

    def cancel(self) -> None:
        """Drop the answer."""
        self._inner.cancel()

    def _arrived(self, response: Response) -> None:
        assert self._reply is not None
        self._reply(response)


class _Changed(Onward):
    __slots__ = ("_change",)

    def __init__(self, inner: Pending, change: Callable[[Response], Response]) -> None:
        super().__init__(inner)
        self._change = change

    def _arrived(self, response: Response) -> None:
        try:
            changed = self._change(response)
        except Exception as error:  # noqa: BLE001  (a link may raise anything)
            context = {"message": "a link failed on an answer", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            changed = error_response(response.id, INTERNAL_ERROR, "internal error")
        super()._arrived(changed)


class _Observed(Onward):
    __slots__ = ("_over",)

    def __init__(self, inner: Pending, over: Over) -> None:
        super().__init__(inner)
        self._over: Over | None = over

    def cancel(self) -> None:
        super().cancel()
        self._tell(None)

    def _arrived(self, response: Response) -> None:
        self._tell(response)
        super()._arrived(response)

    def _tell(self, response: Response | None) -> None:
        over, self._over = self._over, None
        if over is not None:
            over(response)


async def _changed(answer: Awaitable[Response], change: Callable[[Response], Response]) -> Response:
    return change(await answer)


async def _observed(answer: Awaitable[Response], over: Over) -> Response:
    response: Response | None = None
    try:
        response = await answer
    finally:
        over(response)
    return response
