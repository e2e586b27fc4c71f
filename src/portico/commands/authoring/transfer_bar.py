"""A progress bar on stderr, if that is a terminal."""

import sys
from typing import TYPE_CHECKING

from portico.library.distribution.blob_download import NoProgress, Progress

if TYPE_CHECKING:
    from rich.progress import TaskID


class TransferBar:
    """Shows one transfer at a time."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._progress = progress.Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task: TaskID | None = None

    def begin(self, what: str, total: int, done: int) -> None:
        """Show a transfer."""
        self._progress.start()
        self._task = self._progress.add_task(what[-40:], total=total, completed=done)

    def advance(self, size: int) -> None:
        """Add some bytes."""
        if self._task is not None:
            self._progress.advance(self._task, size)

    def end(self) -> None:
        """Remove the bar."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        self._progress.stop()


def transfer_bar() -> Progress:
    """Return a bar for a terminal, elsewhere one that shows nothing."""
    return TransferBar() if sys.stderr.isatty() else NoProgress()
