"""The engine of all components: one set of settings, so that compiled code fits."""

from importlib.metadata import version

from wasmtime import Config, Engine

_STACK = 512 * 1024
SETTINGS = f"wasmtime {version('wasmtime')}; epochs; no threads, no memory64; stack {_STACK}"
"""All that compiled code depends on, besides the component itself. A part of its file's name."""


def new_engine() -> Engine:
    """Return an engine whose guests can be interrupted."""
    config = Config()
    config.epoch_interruption = True
    config.wasm_threads = False
    config.wasm_memory64 = False
    config.max_wasm_stack = _STACK
    return Engine(config)
