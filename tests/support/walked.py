"""Runs a command of Portico and writes down which of its functions are called between two signals.

`python walked.py FILE COMMAND...`: SIGUSR1 begins, SIGUSR2 ends it and writes FILE. A line is a
module and a function, in the order of the calls; the last answer that was written is the end.
"""

import os
import runpy
import signal
import sys
from types import FrameType
from typing import Any

import portico

_HOME = os.path.dirname(portico.__file__) + os.sep
_TRANSPORTS = tuple(
    os.path.join(_HOME, *one, "") for one in (("edge", "transport"), ("core", "http1"))
)
_WRITES = ("write", "writelines", "writev")


class Walk:
    """The calls of Portico's own functions."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._calls: list[str] = []
        self._answered = 0

    def begin(self, *_: object) -> None:
        """Forget what was, and listen."""
        self._calls.clear()
        self._answered = 0
        self._told("begun", "")
        sys.setprofile(self._event)

    def end(self, *_: object) -> None:
        """Listen no more, and tell."""
        sys.setprofile(None)
        self._told("walk", "\n".join(self._calls[: self._answered]))

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        code, caller = frame.f_code, frame.f_back
        if event == "c_call":
            if argument.__name__ in _WRITES:
                self._writes(frame)
        elif event == "call" and code.co_filename.startswith(_HOME):
            # Comprehensions are part of a function, and the loop only waits for what comes.
            if code.co_name[0] != "<" and code.co_qualname != "_Selector.select":
                module = code.co_filename.removeprefix(_HOME).removesuffix(".py")
                self._calls.append(f"{module.replace(os.sep, '.')} {code.co_qualname}")
        elif event == "call" and code.co_name in _WRITES and caller is not None:
            self._writes(caller)

    def _writes(self, frame: FrameType) -> None:
        if frame.f_code.co_filename.startswith(_TRANSPORTS):
            self._answered = len(self._calls)

    def _told(self, suffix: str, text: str) -> None:
        new = f"{self._file}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, f"{self._file}.{suffix}")


if __name__ == "__main__":
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # in asyncio's loop, writes are seen
    walk = Walk(sys.argv.pop(1))
    signal.signal(signal.SIGUSR1, walk.begin)
    signal.signal(signal.SIGUSR2, walk.end)
    runpy.run_module("portico", run_name="__main__", alter_sys=True)
