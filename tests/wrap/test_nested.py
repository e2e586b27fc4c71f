"""A Portico behind a Portico, as an ordinary user: whichever is killed, nothing stays behind."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.running import Piped, initialize_params
from tests.support.soak import times
from tests.support.unprivileged import given, unprivileged
from tests.upstream.process.test_guardian import (
    member,
    shell,
    until_all_are_gone,
    until_all_live,
    until_it_is_gone,
)
from tests.wrap.standing import children, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows who left its group"),
]

ONCE = 'mkdir "$0" || exit 1; exec "$@"'
"""A process that ended must not come back."""
DETACHED = """
import os, sys
asks, answers = os.pipe()
os.write(answers, sys.argv[1].encode() + b"\\n")
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.dup2(asks, 0)
    os.set_inheritable(answers, True)  # its input never ends
    with open(sys.argv[2], "w") as file:
        file.write(str(os.getpid()))
    os.execv(sys.argv[3], sys.argv[3:])
sys.stdin.read()
"""
"""Starts an orphaned Portico in its own session, and waits."""
WRAP = (sys.executable, "-m", "portico", "wrap", "--")
Inner = Callable[[list[str]], Sequence[str]]
"""From a server's command to that of the Portico before it."""
PARAMS = {"params": initialize_params("2025-11-25")}


class Nest:
    """An outer and an inner Portico with servers that are hard to end."""

    def __init__(self, folder: Path, number: int = 0, inner: Inner | None = None) -> None:
        fifo = str(folder / f"alive{number}")
        os.mkfifo(fifo)
        os.chmod(fifo, 0o666)
        self.alive = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        server = shell(member(fifo, "deaf"), member(fifo, "apart", "deaf"))
        once = ["sh", "-c", ONCE, str(folder / f"once{number}"), *server]
        home = f"PORTICO_HOME={given(folder)}"
        words = (*WRAP, *(inner(once) if inner else (*WRAP, *once)))
        self.client = Piped(unprivileged("env", home, *words))
        self.client.start("initialize", initialize_params("2025-11-25"))
        until_all_live(self.alive, 2)
        self.outer = self.client.process.pid

    def pid_of(self, who: str) -> int:
        """The number of `outer`, `inner` or the guardian of either."""
        if who == "outer":
            return self.outer
        kin = {pid: _words(pid) for pid in children(self.outer)}
        guardians = {
            _owner(words): pid for pid, words in kin.items() if "portico-guardian" in words
        }
        inner = next(owner for owner in guardians if owner != self.outer)
        return {
            "inner": inner,
            "the outer guardian": guardians[self.outer],
            "the inner guardian": guardians[inner],
        }[who]

    def ended(self) -> None:
        """See that nothing is left."""
        until_all_are_gone(self.alive)
        os.close(self.alive)
        self.client.process.kill()
        with self.client:
            pass


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def until_they_ended(pids: list[int]) -> None:
    until(lambda: not any(any(_words(pid)) for pid in pids), "one that was killed still runs")


def _owner(words: list[str]) -> int:
    return int(words[words.index("portico-guardian") + 1])


KILLED = [
    ("outer",),
    ("inner",),
    ("the outer guardian", "outer"),
    ("the inner guardian", "inner"),
    ("the inner guardian", "outer"),
    ("the inner guardian", "the outer guardian", "inner", "outer"),
]


@pytest.mark.soak
@pytest.mark.parametrize("killed", KILLED, ids=", then ".join)
def test_a_portico_behind_a_portico_leaves_nothing(
    killed: tuple[str, ...], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rounds = times(1, 5)
    for number in range(rounds):
        nest = Nest(tmp_path, number)
        pids = [nest.pid_of(who) for who in killed]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        nest.ended()
        until_they_ended(pids)
    record_property("soak", f"{rounds} rounds, 0 processes left")


def test_an_inner_portico_that_nobody_is_the_parent_of_is_found(tmp_path: Path) -> None:
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize"} | PARAMS)
    number, config = tmp_path / "inner", tmp_path / "inner.json"

    def inner(server: list[str]) -> Sequence[str]:
        script = tmp_path / "server"
        script.write_text(f"exec {shlex.join(server)}")
        entry = {"command": "sh", "args": [str(script)]}
        config.write_text(json.dumps({"mcpServers": {"one": entry}}))
        launcher = (sys.executable, "-I", "-S", "-c", DETACHED, hello, str(number))
        # It does not end with its only server, as a wrap would.
        serve = ("-m", "portico", "serve", "--stdio", "--alone", "--config", str(config))
        return *launcher, sys.executable, *serve

    nest = Nest(tmp_path, inner=inner)
    nest.client.process.kill()
    until_it_is_gone(int(number.read_text()))
    nest.ended()
