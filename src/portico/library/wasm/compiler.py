"""The process that compiles one component: hostile input may make that slow, large or fail.

It is started by `compiled_code.py` with the component on its stdin and the compiled code on its
stdout, has no environment, and is limited before it reads a byte.
"""

import resource
import signal
import sys

MAX_CPU_S = 600
FAILED = 3
"""The exit code for a component that cannot be compiled; the reason is on stderr."""


def main(argv: list[str]) -> int:
    """Compile stdin to stdout, within the bytes of memory and the seconds in `argv`; return the
    exit code."""
    _limit(int(argv[0]))
    signal.alarm(int(argv[1]))  # it may outlive its parent, and compiles without Python
    data = sys.stdin.buffer.read()
    from wasmtime import WasmtimeError
    from wasmtime.component import Component

    from portico.library.wasm.engine import new_engine

    try:
        code = Component(new_engine(), data).serialize()
    except WasmtimeError as error:
        sys.stderr.write(str(error)[:2000])
        return FAILED
    sys.stdout.buffer.write(code)
    sys.stdout.buffer.flush()
    return 0


def _limit(max_memory: int) -> None:
    for kind, limit in (
        # Memory that can be written to: wasmtime reserves much more address space than it uses.
        (resource.RLIMIT_DATA, max_memory),
        (resource.RLIMIT_CPU, MAX_CPU_S),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (least, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
