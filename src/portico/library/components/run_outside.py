"""Runs Portico in another Python: `python run_outside.py PATHS run FILE`.

The packages of that Python come first; Portico and what it needs are added after them. This file
imports nothing of Portico, which may not be installed there.
"""

import importlib.util
import os
import sys
from importlib import import_module


def main() -> int:
    """Run a command of Portico; the exit code."""
    paths, *words = sys.argv[1:]
    sys.argv[:] = ["portico", *words]
    if importlib.util.find_spec("portico") is None:
        sys.path += paths.split(os.pathsep)
    try:
        run = import_module("portico.commands.cli.main").main
    except ImportError as error:
        here = ".".join(map(str, sys.version_info[:2]))
        sys.stderr.write(
            f"portico: Portico cannot run in {sys.executable} (Python {here}): {error}; "
            "install portico there\n"
        )
        return 1
    code: int = run(words)
    return code


if __name__ == "__main__":
    sys.exit(main())
