"""The failures of guests, as messages for people and models."""

import re
from typing import TYPE_CHECKING

from portico.core.model.errors import PorticoError

if TYPE_CHECKING:
    from wasmtime import WasmtimeError

    from portico.core.config.component_grants import GuestLimits
    from portico.library.wasm.running_call import RunningCall

_MAX_SHOWN = 400
_MISSING = (
    r"component imports instance `([^`]{1,200})`, but a matching implementation was not found"
)
INTERRUPTED = "interrupted by the host"
"""The error of a guest that the host ended."""


class GuestFailure(PorticoError):
    """A guest did not answer: it trapped, took too long, or ended with its worker."""

    @classmethod
    def stuck(cls, time_s: float) -> "GuestFailure":
        """Return the failure of a guest that cannot be interrupted."""
        return cls(f"took longer than {time_s:g} s, waiting in a function of WASI")

    @classmethod
    def beside_stuck(cls) -> "GuestFailure":
        """Return the failure of a call that had to end with a stuck one."""
        what = "was restarted, because another call of it could not be interrupted"
        return cls(f"{what}; this call may have had effects")

    @classmethod
    def out_of_memory(cls, limit_mb: int) -> "GuestFailure":
        """Return the failure of all calls of a worker that uses too much memory."""
        what = f"was restarted, because it used more than {limit_mb} MB of memory"
        return cls(f"{what}; this call may have had effects")

    @classmethod
    def not_final(cls, kind: str) -> "GuestFailure":
        """Return the failure of a guest whose result is a question, or a task."""
        what = f"returned a result of the type {kind[:40]!r}"
        return cls(f"{what}; it may ask only with elicit or sample, if that is granted")

    @classmethod
    def too_large(cls, size: int, limit_mb: float) -> "GuestFailure":
        """Return the failure of an answer beyond the limit."""
        what = f"returned {size:,} bytes, more than the limit of {limit_mb:g} MB"
        return cls(f"{what}; grant a larger output, or ask for less")


def failure_of(error: "WasmtimeError", call: "RunningCall", limits: "GuestLimits") -> GuestFailure:
    """Return the failure for an error of wasmtime."""
    text = str(error)
    code = getattr(error, "code", None)
    if INTERRUPTED in text:
        why = f"took longer than {limits.time_s:g} s; grant more time, or ask for less"
        return GuestFailure(why)
    if "exceeds memory limits" in text:
        return GuestFailure(f"needs more memory than the {limits.memory_mb:g} MB that are granted")
    if "fuel allocated for hostcalls" in text:
        return GuestFailure("passed more data to its host than one call may; ask for less")
    if found := re.match(_MISSING, text):
        what = f"imports {found[1]}, which Portico does not have"
        return GuestFailure(f"{what}; build the component without it")
    if "call stack exhausted" in text:
        return GuestFailure("overflowed its stack")
    if code is not None:
        return GuestFailure(f"exited with code {code}")
    reason = call.stderr or _cause(text)
    return GuestFailure(f"failed: {reason[:_MAX_SHOWN]}")


def keeps_borrowed(error: "WasmtimeError") -> bool:
    """True if a guest did not return what it had borrowed: its compiler does not."""
    return "borrow handles still remain" in str(error)


def _cause(text: str) -> str:
    """Return the last cause in an error, without the backtrace."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason is known"
    return last.removeprefix("wasm trap: ").lstrip("0123456789: ")


class Refused(Exception):
    """A function of the host refuses; the guest gets the text as its error."""
