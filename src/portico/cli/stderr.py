"""What is logged, written to standard error by a thread: one who does not read it stops nobody."""

import logging
import os
import threading
from contextlib import suppress
from queue import SimpleQueue

_MOST_WAITING = 1000
_LAST_WORDS_S = 1.0


class StderrLog(logging.Handler):
    """Hands lines to a thread that writes them; those that nobody has room for are lost."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._waiting: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        self._writer: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written."""
        if self._waiting.qsize() >= _MOST_WAITING:
            return
        self._waiting.put(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="portico-log", daemon=True)
            self._writer.start()

    def flush(self) -> None:
        """Wait a moment for what is not written yet."""
        if self._writer is not None:
            done = threading.Event()
            self._waiting.put(done)
            done.wait(_LAST_WORDS_S)

    def _write(self) -> None:
        while True:
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            # Past Python's own buffer, whose lock nobody could take while this waits.
            with suppress(OSError):
                while item:
                    item = item[os.write(2, item) :]


def log_to_stderr() -> None:
    """Log there, unless whoever was imported has arranged for something else."""
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(StderrLog())
