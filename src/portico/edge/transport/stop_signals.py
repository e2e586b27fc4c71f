"""SIGTERM and SIGINT as an event that stops a transport."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(
    stop: asyncio.Event,
    interrupted: Callable[[], object] | None = None,
    give_notice: Callable[[], float] = lambda: 0.0,
) -> Callable[[], None]:
    """Set `stop` on SIGTERM and SIGINT, and call `interrupted`; return a function that restores the
    default handlers. `give_notice` returns by how many seconds the first SIGTERM is delayed."""
    loop = asyncio.get_running_loop()
    notice: asyncio.TimerHandle | None = None

    def received(number: signal.Signals) -> None:
        nonlocal notice
        if number == signal.SIGTERM and notice is None and (wait_s := give_notice()):
            notice = loop.call_later(wait_s, stop_now)
        else:
            stop_now()

    def stop_now() -> None:
        stop.set()
        if interrupted is not None:
            interrupted()

    # Not available in other threads or on Windows: use `stop` there.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in _SIGNALS:
            loop.add_signal_handler(number, received, number)

    def restore_signals() -> None:
        if notice is not None:
            notice.cancel()
        with contextlib.suppress(NotImplementedError):
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    return restore_signals
