"""Ends guests that compute: at every tick of the epoch, the host decides whether one continues.

wasmtime-py itself has a deadline only, which cannot be moved while the guest runs.
"""

import ctypes
from typing import Any

from wasmtime import Store
from wasmtime import _ffi as ffi

from portico.library.wasm.failures import INTERRUPTED
from portico.library.wasm.running_call import current_call

_CONTINUE = 0


def end_with_call(store: Store) -> None:
    """End the guest of a store as soon as the call that it runs for is over."""
    ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), _at_tick, None, _no_finalizer)
    store.set_epoch_deadline(1)


def _decide(context: Any, data: Any, ticks: Any, kind: Any) -> int:
    """Let the guest of this thread run until the next tick, or return an error that ends it."""
    if current_call().is_over:
        error = ffi.wasmtime_error_new(INTERRUPTED.encode())
        return ctypes.cast(error, ctypes.c_void_p).value or 0
    ticks[0], kind[0] = 1, _CONTINUE
    return 0


_at_tick = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(ffi.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint8),
)(_decide)
_no_finalizer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)()
