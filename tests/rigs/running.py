"""Starts the rigs: as a command for a client, or as a server on a port of its own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

from tests.support.running import Child

HERE = Path(__file__).parent


def everything(*options: str) -> list[str]:
    """The command line of the everything server on the SDK."""
    return [sys.executable, str(HERE / "everything_sdk.py"), *options]


def bad(*options: str) -> list[str]:
    """The command line of the misbehaving server; the first option is stdio or http."""
    return [sys.executable, "-I", "-S", str(HERE / "badserver.py"), *options]


def recorder(*options: str) -> list[str]:
    """The command line of the recorder; the first option is stdio or http."""
    return [sys.executable, "-I", "-S", str(HERE / "recorder.py"), *options]


def shelf(file: Path) -> list[str]:
    """The command line of the server whose tools are the words of a file."""
    return [sys.executable, "-I", "-S", str(HERE / "shelf.py"), str(file)]


def shuffler(era: str, file: Path, *page: str) -> list[str]:
    """The command line of the server that lists the words of a file in another order each time."""
    return [sys.executable, "-I", "-S", str(HERE / "shuffler.py"), era, str(file), *page]


def scripted(file: Path) -> list[str]:
    """The command line of the server whose offer is a JSON file."""
    return [sys.executable, "-I", "-S", str(HERE / "scripted.py"), str(file)]


def questions(era: str) -> list[str]:
    """The command line of the server that sends the requested questions; legacy or modern."""
    return [sys.executable, "-I", "-S", str(HERE / "questions.py"), era]


def asking(library: str, *options: str) -> list[str]:
    """The command line of the server that asks as Python servers do; on mcp or on fastmcp."""
    return [sys.executable, str(HERE / "asking.py"), library, *options]


def tasks(era: str) -> list[str]:
    """The command line of the server whose calls become tasks; legacy, modern or both."""
    return [sys.executable, "-I", "-S", str(HERE / "tasks.py"), era]


def ledger(file: Path) -> list[str]:
    """The command line of the fast server that writes down each call in a file."""
    return [sys.executable, "-I", "-S", str(HERE / "ledger.py"), str(file)]


def laggard(mode: str, count: int) -> list[str]:
    """The command line of the server that takes its time over large calls; late or slow."""
    return [sys.executable, "-I", "-S", str(HERE / "laggard.py"), mode, str(count)]


def troubled(trouble: str) -> list[str]:
    """The command line of the server that hangs, exits, is stuck in calls, unlisted or listless."""
    return [sys.executable, "-I", "-S", str(HERE / "troubled.py"), trouble]


@contextmanager
def listening(command: list[str]) -> Iterator[str]:
    """The URL of a server that prints its port first, for as long as the block runs."""
    child = Child(command, PIPE)
    stdin, stdout = child.process.stdin, child.process.stdout
    assert stdin is not None
    assert stdout is not None
    try:
        port = stdout.readline().strip()
        if not port:
            child.ended()
            raise RuntimeError(f"it named no port:\n{child.stderr()}")
        yield f"http://127.0.0.1:{port.decode()}/mcp"
    finally:
        child.stop()
        stdin.close()
        stdout.close()
