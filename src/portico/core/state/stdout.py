"""The process's standard output."""

import os
import sys


def take_stdout() -> int:
    """Reserve stdout for the protocol: prints of handlers go to stderr from now on."""
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout.flush()  # earlier prints go to stderr too
    sys.stdout = sys.stderr
    return out
