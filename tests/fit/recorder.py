"""Runs a stdio server for a real client, and writes down what the client sends it.

    python recorder.py FOLDER COMMAND ARGS...

FOLDER gets the names of the client's environment variables, and the messages of both ways.
"""

import os
import sys
from pathlib import Path

TEE = Path(__file__).resolve().parents[1] / "support" / "tee.py"


def main(folder: str, *command: str) -> None:
    """Write the names, then become the recorded server."""
    place = Path(folder)
    number = len([*place.glob("*.environment")])
    (place / f"{number}.environment").write_text("\n".join(sorted(os.environ)))
    record = str(place / f"{number}.messages")
    program = sys.executable
    os.execv(program, [program, "-I", "-S", str(TEE), record, *command])  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])
