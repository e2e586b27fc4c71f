"""The children of a killed Portico are found again by its file, and by nothing that looks alike."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from portico.upstream.process.children_file import end_orphans, orphans, pids_name
from portico.upstream.process.process_tree import MARK, marks_of, start_of
from tests.wrap.standing import until

DEAF = "import signal, sys, time; signal.signal(15, 1); print('up', flush=True); time.sleep(600)"
DRIVER = f"""
import asyncio, os, sys
from portico.upstream.process.child_process import ChildProcess
from portico.upstream.process.guardian import GUARDIAN

async def main():
    argv = [sys.executable, "-I", "-S", "-c", {DEAF!r}]
    child = await ChildProcess.start(argv, dict(os.environ), None)
    await asyncio.to_thread(child.stdout.readline)
    print(child.pid, GUARDIAN.pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await child.end(0, 30)

asyncio.run(main())
"""


class Driven(NamedTuple):
    """A Portico with one child that ignores SIGTERM."""

    process: "subprocess.Popen[str]"
    child: int
    guardian: int

    def kill(self) -> None:
        """Kill it as a power failure of its own would: it can clean up nothing."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    return tmp_path / "state" / "children"


@contextlib.contextmanager
def driven() -> Iterator[Driven]:
    command = [sys.executable, "-c", DRIVER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        child, guardian = map(int, process.stdout.readline().split())
        try:
            yield Driven(process, child, guardian)
        finally:
            process.kill()
            for one in (guardian, child):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one, signal.SIGKILL)


def test_a_child_without_portico_and_guardian_is_an_orphan_until_it_is_ended(home: Path) -> None:
    with driven() as portico:
        assert len(list(home.iterdir())) == 1
        assert orphans() == []
        os.killpg(portico.guardian, signal.SIGSTOP)
        portico.kill()
        assert orphans() == []  # its guardian will end it
        os.killpg(portico.guardian, signal.SIGKILL)
        until(orphans, "no orphan was found")
        found = orphans()
        assert [(one.pid, one.start) for one in found] == [(portico.child, start_of(portico.child))]
        end_orphans(found)
        assert start_of(portico.child) is None
        assert orphans() == []


def test_a_portico_that_ends_leaves_no_file_and_removes_those_of_the_dead(home: Path) -> None:
    home.mkdir(parents=True)
    dead, other = home / f"1-{pids_name()}-dead", home / "1-before"
    dead.write_text("+aa 1 1\n")
    other.write_text("+aa 1 1\n")
    os.utime(other, (0, 0))
    with driven() as portico:
        assert portico.process.stdin is not None
        until(lambda: not dead.exists() and not other.exists(), "they stay")
        assert len(list(home.iterdir())) == 1
        portico.process.stdin.close()
        assert portico.process.wait(60) == 0
    assert list(home.iterdir()) == []


def test_a_process_that_reused_the_pid_is_no_orphan(home: Path) -> None:
    home.mkdir(parents=True)
    own = os.getpid()
    start = start_of(own)
    assert start is not None
    file = home / f"1-{pids_name()}-x"
    file.write_text(f"+aa {own} {start + 1}\n")
    assert orphans() == []
    file.write_text(f"+aa {own} {start}\n-aa\n")
    assert orphans() == []
    file.write_text(f"+aa {own} {start}\n")
    assert [one.mark for one in orphans()] == ["aa"]
    with file.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert orphans() == []


def test_the_pids_of_another_machine_or_start_or_container_mean_nothing(home: Path) -> None:
    home.mkdir(parents=True)
    own = os.getpid()
    for name in ("1-x", "1-0123abcd4026531836-x", "1--x"):
        (home / name).write_text(f"+aa {own} {start_of(own)}\n")
    assert orphans() == []


def test_the_next_portico_ends_what_guardian_and_twin_could_not(home: Path) -> None:
    with driven() as first:
        beside = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", DEAF],
            stdout=subprocess.PIPE,
            env={MARK: marked(first.child)},
            start_new_session=True,
        )
        os.kill(first.process.pid, signal.SIGSTOP)
        os.killpg(first.guardian, signal.SIGKILL)  # its twin as well
        first.kill()
        until(orphans, "no orphan was found")
        with driven() as second:
            until(lambda: start_of(first.child) is None, "it stays")
            assert start_of(second.child) is not None
        # As a program that a person started in a terminal that an agent opened.
        assert start_of(beside.pid) is not None, "it only had the mark"
        with beside:
            beside.kill()


def marked(pid: int) -> str:
    [mark] = marks_of(pid)[0]
    return mark


@pytest.mark.parametrize("text", ["", "+", "+a", "+a b c", "+a 1", "\0" * 9, "-", "+a 1 2 3", "é"])
def test_a_damaged_file_is_no_orphan_and_no_error(home: Path, text: str) -> None:
    home.mkdir(parents=True)
    (home / f"1-{pids_name()}-x").write_text(text)
    (home / "readme").write_text("not one of ours")
    (home / f"2-{pids_name()}-link").symlink_to("/etc/passwd")
    assert orphans() == []
