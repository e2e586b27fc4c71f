"""A real `portico wrap` for as long as a block runs, and the everything server to put behind it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.rigs.running import everything, listening
from tests.support.running import PLAIN
from tests.wrap.faults import Wrap


@contextmanager
def wrapped(target: list[str], *options: str, by: Sequence[str] = PLAIN) -> Iterator[str]:
    """The URL of a doorway over HTTP; it must end well, and leave no process behind."""
    with TemporaryDirectory(prefix="portico-") as home:
        wrap = Wrap(Path(home), *options, *target, by=by)
        try:
            with wrap:
                # The suite looks for DNS rebinding, which the name of a local host is part of.
                yield f"http://localhost:{wrap.port}/mcp"
        except BaseException as error:
            error.add_note(f"portico wrap said:\n{wrap.stderr()}")
            raise
        assert wrap.process.returncode == 0, wrap.stderr()


@contextmanager
def everything_over(kind: str, era: str) -> Iterator[list[str]]:
    """The everything server of an era, as what `portico wrap` is to wrap."""
    if kind == "stdio":
        yield ["--", *everything("--stdio", "--era", era)]
        return
    with listening(everything("--http", "0", "--era", era)) as url:
        yield [url]


def lost(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """The checks of the suite that passed before and do not after."""
    passed = {check for check, status in before.items() if status == "SUCCESS"}
    return passed - {check for check, status in after.items() if status == "SUCCESS"}
