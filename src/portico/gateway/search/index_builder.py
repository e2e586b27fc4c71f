"""Builds large indexes in a separate process.

Building in a thread would slow the event loop for a second, and leave 40 MB in use.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from portico.gateway.search.index import ToolIndex
from portico.upstream.process.environment import clean

MAX_INLINE = 500
"""Tools that are indexed in a tenth of a second, about as long as a process takes to start."""
_TIMEOUT_S = 120.0
_READ = ("name", "server", "title", "description", "inputSchema")
"""The keys of a definition that are indexed."""

Tools = Callable[[], Iterable[Mapping[str, Any]]]


def build(tools: Tools) -> ToolIndex:
    """Build the index of these tools; call it in a thread."""
    few = [*islice(tools(), MAX_INLINE + 1)]
    if len(few) <= MAX_INLINE:
        return ToolIndex.build(few)
    del few
    index = _build_in_process(tools)
    return ToolIndex.build(tools()) if index is None else index


def _build_in_process(tools: Tools) -> ToolIndex | None:
    """Return None on failure: building in this process will then show the error."""
    # Only what Python needs: our environment has secrets, and other processes can read this one.
    needed = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
    try:
        # -P, so that nothing in the working folder is taken for a module.
        with subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**clean(os.environ), **needed},
        ) as builder:
            assert builder.stdin is not None
            try:
                for tool in tools():
                    line = msgspec.json.encode({key: tool.get(key) for key in _READ})
                    builder.stdin.write(line + b"\n")
                data, _ = builder.communicate(timeout=_TIMEOUT_S)
            except BaseException:
                builder.kill()
                raise
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return None
    return ToolIndex.from_bytes(data)


def main() -> None:
    """Run in the process: read one definition per line, and write the index."""
    tools = map(msgspec.json.decode, sys.stdin.buffer)
    data = ToolIndex.build(tools).to_bytes()
    with os.fdopen(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(data)


if __name__ == "__main__":
    main()
