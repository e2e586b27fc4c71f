"""The questions of one turn that wait for an answer."""

import asyncio
from collections.abc import Awaitable, Callable

from portico.agents.turns.delegation import AgentAnswer, AgentQuestion
from portico.agents.turns.turn_clock import TurnClock

Ask = Callable[[AgentQuestion], Awaitable[AgentAnswer | None]]


class Questions:
    """Passes questions to the owner of the turn; each is open until its deadline at most."""

    def __init__(self, ask: Ask, on_error: Callable[[Exception], None]) -> None:
        self.clock: TurnClock | None = None
        self._ask = ask
        self._on_error = on_error
        self._cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_cancelled(self) -> bool:
        """True once the turn is cancelled."""
        return self._cancelled.done()

    def cancel(self) -> None:
        """End all questions without an answer: the turn is cancelled."""
        if not self._cancelled.done():
            self._cancelled.set_result(None)

    async def ask(self, question: AgentQuestion) -> AgentAnswer | None:
        """Return the answer, or None; raises TimeoutError at the deadline."""
        if self.is_cancelled:
            return None
        if self.clock is None:
            return await self._wait(question)
        with self.clock.paused():
            return await self._wait(question)

    async def _wait(self, question: AgentQuestion) -> AgentAnswer | None:
        asking = asyncio.ensure_future(self._ask(question))
        try:
            await asyncio.wait(
                (asking, self._cancelled),
                timeout=question.deadline_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self.is_cancelled:
                return None
            if not asking.done():
                raise TimeoutError
            return asking.result()
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  (the owner's failure ends the turn, whatever it is)
            self._on_error(error)
            return None
        finally:
            asking.cancel()
