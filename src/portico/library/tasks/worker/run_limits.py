"""How many tasks a worker may run at once: of one place, or of a kind with a limit of its own."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from portico.library.tasks.store.record import TaskRecord

_Group = tuple[str, str]
"""Tasks that share a limit: a kind with a limit of its own, or else a place."""
Full = list[tuple[str, str]]
"""Kinds and places of which no further task may run now."""


class RunLimits:
    """The limits of one worker. The tasks of a server or an agent whose tasks never end keep out
    none of the others."""

    def __init__(self, at_one_place: int, tasks: Callable[[], Iterable[TaskRecord]]) -> None:
        """`tasks` returns those that run."""
        self._at_one_place = at_one_place
        self._tasks = tasks
        self._of_kinds: dict[str, Callable[[], int]] = {}
        self._reserved: Counter[_Group] = Counter()
        """Tasks that are being stored, to run at once."""

    def limit(self, kind: str, limit: Callable[[], int]) -> None:
        """Let up to this many tasks of a kind run, wherever they are."""
        self._of_kinds[kind] = limit

    def has_room(self, kind: str, place: str) -> bool:
        """True if another task of a kind may run at a place."""
        return self._is_free(self._group(kind, place), self._running())

    @contextmanager
    def reserved(self, kind: str, place: str) -> Iterator[None]:
        """Count a task while it is stored."""
        group = self._group(kind, place)
        self._reserved[group] += 1
        try:
            yield
        finally:
            self._reserved[group] -= 1

    def claimable(self, kinds: Iterable[str]) -> tuple[list[str], Full]:
        """Return those of the kinds of which another task may run, and where it may not."""
        running = self._running()
        shared = [kind for kind in kinds if kind not in self._of_kinds]
        own = [kind for kind in self._of_kinds if self._is_free((kind, ""), running)]
        full = [group[1] for group in running if not group[0] and not self._is_free(group, running)]
        return [*shared, *own], [(kind, place) for kind in shared for place in full]

    def _group(self, kind: str, place: str) -> _Group:
        return (kind, "") if kind in self._of_kinds else ("", place)

    def _running(self) -> Counter[_Group]:
        running = self._reserved.copy()
        running.update(self._group(task.kind, task.place) for task in self._tasks())
        return running

    def _is_free(self, group: _Group, running: Counter[_Group]) -> bool:
        limit = self._of_kinds.get(group[0])
        return running[group] < (self._at_one_place if limit is None else limit())
