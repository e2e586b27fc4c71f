"""Whether a child works is seen from outside, by what it and its descendants do."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from portico.upstream.process.process_work import ProcessWork, work_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows the work")

OBEYS = """
import os, subprocess, sys, time
sleeping = "import sys; sys.stdin.read()"
for line in sys.stdin:
    word = line.strip()
    if word == "compute":
        until = time.process_time() + 0.5
        while time.process_time() < until: pass
    elif word == "write":
        os.write(os.open(os.devnull, os.O_WRONLY), bytes(1_000_000))
    elif word == "start":
        subprocess.Popen([sys.executable, "-c", sleeping], stdin=subprocess.PIPE, stdout=2)
    elif word == "run":
        busy = "import time\\nwhile time.process_time() < 0.5: pass"
        subprocess.run([sys.executable, "-c", busy])
    print("done", flush=True)
"""


class Child:
    """A child that does as it is told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", OBEYS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def does(self, word: str) -> ProcessWork:
        """Wait until it has done something; its work so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"
        found = work_of(self.process.pid)
        assert found is not None
        return found


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child()
    with made.process:
        yield made
        made.process.kill()


@pytest.mark.parametrize("word", ["compute", "write", "start", "run"])
def test_a_child_that_works_is_told_from_one_that_waits(child: Child, word: str) -> None:
    before = child.does("nothing")
    idle = child.does("nothing")
    assert not idle.differs(before)
    assert child.does(word).differs(idle)


def test_a_child_that_has_ended_does_nothing(child: Child) -> None:
    child.process.kill()
    child.process.wait()
    first, second = work_of(child.process.pid), work_of(child.process.pid)
    assert first is not None
    assert second is not None
    assert not second.differs(first)
