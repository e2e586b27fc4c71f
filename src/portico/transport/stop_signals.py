"""SIGTERM and SIGINT as an event that stops a transport."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(
    stop: asyncio.Event, interrupted: Callable[[], object] | None = None
) -> Callable[[], None]:
    """Set `stop` on SIGTERM and SIGINT, and call `interrupted`; return a function that restores the
    default handlers."""
    loop = asyncio.get_running_loop()

    def received() -> None:
        stop.set()
        if interrupted is not None:
            interrupted()

    # Not available in other threads or on Windows: use `stop` there.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in _SIGNALS:
            loop.add_signal_handler(number, received)

    def restore_signals() -> None:
        with contextlib.suppress(NotImplementedError):
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    return restore_signals
