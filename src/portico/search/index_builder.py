"""Large indexes are built in a process of their own: the event loop and our memory feel nothing.

Building in a thread would take turns with the loop for a second, and leave 40 MB behind.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from portico.process.environment import clean
from portico.search.index import ToolIndex

FEW = 500
"""So many tools are built in a tenth of a second, about what a process takes to start."""
_PATIENCE_S = 120.0
_READ = ("name", "server", "title", "description", "inputSchema")
"""What an index is made from."""

Tools = Callable[[], Iterable[Mapping[str, Any]]]


def build(tools: Tools) -> ToolIndex:
    """The index of these tools; call it in a thread."""
    few = [*islice(tools(), FEW + 1)]
    if len(few) <= FEW:
        return ToolIndex.build(few)
    del few
    index = _elsewhere(tools)
    return ToolIndex.build(tools()) if index is None else index


def _elsewhere(tools: Tools) -> ToolIndex | None:
    """None if it went wrong: then we build it here, and what is wrong will show."""
    # What Python needs: other processes of the user can read it, and ours has secrets.
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
                data, _ = builder.communicate(timeout=_PATIENCE_S)
            except BaseException:
                builder.kill()
                raise
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return None
    return ToolIndex.from_bytes(data)


def main() -> None:
    """In the process: definitions in, a line each; the index out."""
    tools = map(msgspec.json.decode, sys.stdin.buffer)
    data = ToolIndex.build(tools).to_bytes()
    with os.fdopen(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(data)


if __name__ == "__main__":
    main()
