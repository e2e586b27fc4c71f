"""Runs a stdio server and records the messages in both directions.

    python tee.py RECORDING COMMAND ARGS...

Each line of RECORDING is `>` (to the server) or `<` (from it) and the message. A message is
written down before it is passed on, so a question always stands before its answer.
"""

import os
import subprocess
import sys
import threading
from typing import IO


def main(recording: str, *command: str) -> int:
    """Copy until the server ends; its exit code is ours."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    record = os.open(recording, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    to_server = threading.Thread(
        target=_copy, args=(sys.stdin.buffer, child.stdin, record, b">"), daemon=True
    )
    to_server.start()
    _copy(child.stdout, sys.stdout.buffer, record, b"<")
    return child.wait()


def _copy(source: IO[bytes], sink: IO[bytes], record: int, way: bytes) -> None:
    try:
        for line in source:
            os.write(record, way + line)
            sink.write(line)
            sink.flush()
        sink.close()
    except BrokenPipeError:
        pass  # the other side has left


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))  # a thread may still hold stdin, which sys.exit would wait for
