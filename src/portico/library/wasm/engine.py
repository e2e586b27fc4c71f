"""The engine of all components: one set of settings, so that compiled code fits."""

import os
import re

import wasmtime
from wasmtime import Config, Engine

_STACK = 512 * 1024


def _version() -> str:
    """Return the version of wasmtime by the name of its folder: `importlib.metadata` would cost
    each worker 2 MB."""
    installed = os.path.dirname(os.path.dirname(wasmtime.__file__))
    for name in os.listdir(installed):
        if found := re.fullmatch(r"wasmtime-(\d.*)\.dist-info", name):
            return found[1]
    from importlib.metadata import version

    return version("wasmtime")


SETTINGS = f"wasmtime {_version()}; epochs; no threads, no memory64; stack {_STACK}"
"""All that compiled code depends on, besides the component itself. A part of its file's name."""


def new_engine() -> Engine:
    """Return an engine whose guests can be interrupted."""
    config = Config()
    config.epoch_interruption = True
    config.wasm_threads = False
    config.wasm_memory64 = False
    config.max_wasm_stack = _STACK
    return Engine(config)
