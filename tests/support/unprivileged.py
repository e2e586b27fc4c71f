"""Runs commands as an ordinary user even if root runs the tests: root can read every process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.shared import unavailable

NOBODY = 65534
_PROBE = """
import os, sys
for file in ("environ", "mem", "maps", "fd/0"):
    path = f"/proc/{sys.argv[1]}/{file}"
    try:
        os.readlink(path) if file == "fd/0" else open(path, "rb").read(1)
    except PermissionError:
        continue
    except OSError:  # of memory, the first byte is nobody's
        pass
    print(file)
"""


def unprivileged(*argv: str) -> list[str]:
    """The command as an ordinary user would run it."""
    plain = ["env", "-u", "PORTICO_DEBUGGABLE", *argv]
    if os.geteuid():
        return plain
    if shutil.which("setpriv") is None:
        unavailable("setpriv, of util-linux, is not there")
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    # Files of root, such as its Python, may be used; processes may not be looked into.
    files = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    return ["setpriv", *user, *files, *plain]


def given(folder: Path) -> Path:
    """The folder, as one of that user's."""
    if not os.geteuid():
        os.chown(folder, NOBODY, NOBODY)
    return folder


def readable(pid: int) -> list[str]:
    """The data of this process that another process of the same user can read."""
    command = unprivileged(sys.executable, "-I", "-S", "-c", _PROBE, str(pid))
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
