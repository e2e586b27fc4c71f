"""The text of an agent on the terminal: printed as it comes, and each part once."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from portico.agents.delegation.agent_text import AgentTextReader
from portico.agents.delegation.stored_delegation import DelegationResult, stored_result
from portico.commands.console.render import Screen, Ticker
from portico.commands.console.task_views import print_result
from portico.core.model.wording import plain
from portico.library.tasks.store.record import COMPLETED, TaskRecord

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_POLL_S = 0.1


class SpokenText:
    """Prints what the agent of a task writes, and then the rest of its result."""

    def __init__(self, folder: str, id: str, out: Screen | None, ticker: Ticker) -> None:
        """`folder` is the state folder; without `out`, nothing is printed."""
        self._reader = AgentTextReader(folder, id)
        self._out, self._ticker = out, ticker
        self._shown = ""
        self._is_within_line = self._is_paused = False

    def has_said(self, message: str) -> bool:
        """True for a message of the task that adds nothing to the printed text."""
        from portico.agents.turns.turn_updates import PRINTED, WRITING

        self.show_new()
        return bool(self._shown) and (message == WRITING or message.startswith(PRINTED))

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Print the text as it comes, for as long as the block runs."""
        following = asyncio.ensure_future(self._follow())
        try:
            yield
        finally:
            following.cancel()

    async def _follow(self) -> None:
        while self._out is not None:
            self.show_new()
            await asyncio.sleep(_POLL_S)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Print nothing while the user answers a question."""
        self.break_line()
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def show_new(self) -> None:
        """Print the text that the agent has written since the last time."""
        if self._out is not None and not self._is_paused and (added := self._reader.read()):
            self._ticker.clear()
            self._shown += added
            self._out.write(added)
            self._is_within_line = not added.endswith("\n")

    def break_line(self) -> None:
        """Begin a new line at a terminal, before something else is printed there."""
        if self._is_within_line and self._out is not None and self._out.is_terminal:
            self._out.write("\n")
            self._is_within_line = False

    def end_line(self) -> None:
        """End the text that was printed."""
        self._reader.close()
        if self._is_within_line and self._out is not None:
            self._out.write("\n")
            self._is_within_line = False

    def rest_of(self, failure: str) -> str:
        """Return a failure without the text before it that was printed."""
        return failure.removeprefix(self._shown).lstrip("\n")

    def finish(self, result: str) -> None:
        """Print the part of a result that was not printed yet."""
        is_known = result.startswith(self._shown)
        rest = result[len(self._shown) :] if is_known else result
        if not is_known or not rest:
            self.end_line()
        if self._out is not None and (rest or not self._shown):
            self._out.write(rest if rest.endswith("\n") else f"{rest}\n")


async def print_end(store: "TaskStore", task: TaskRecord, spoken: SpokenText) -> None:
    """Print the rest of a finished task: its result, or its failure on stderr."""
    err = Screen(sys.stderr)
    found = stored_result(await store.result(task)) if task.state is COMPLETED else None
    if found is None:
        spoken.end_line()
        await print_result(store, task)
    elif task.is_error:
        spoken.end_line()
        err.print(f"portico: {spoken.rest_of(found.result)}")
    else:
        spoken.finish(found.result)
    if found is not None and (about := _summary(found)):
        err.print(about, "dim")


def _summary(found: DelegationResult) -> str:
    """The agent, its usage and the changed files, on one line."""
    parts = [found.agent_id, found.stop_reason]
    for name, value in found.usage.items():
        shown = plain(value) if isinstance(value, int | float) else value
        parts.append(f"{name.replace('_', ' ')} {shown}")
    if found.files_changed:
        parts.append(f"changed {', '.join(found.files_changed[:10])}")
        parts.append(found.changes)
    known = [part for part in parts if part]
    return "; ".join(known) if len(known) > 1 else ""
