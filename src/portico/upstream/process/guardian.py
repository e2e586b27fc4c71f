"""Supervises the guardian: a second process that ends our children after our death.

A killed process cannot clean up. So the guardian learns of every child over a pipe, and ends those
that remain when the pipe closes. No child is started before a guardian has confirmed that it knows
of it. One thread starts the guardian, reads its confirmations and replaces it when it ends.
"""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time

from portico.upstream.process.children_file import ChildrenFile
from portico.upstream.process.process_tree import GUARDIAN_NAME, MARK

ANSWER_S = 5.0
"""The timeout for a guardian's confirmation, after which it is replaced."""
_TRIES = 4
_GRACE_S = 0.5
_MIN_LIFETIME_S = 1.0
"""A guardian that dies sooner than this is restarted with backoff."""
_PAUSE_S, _MAX_PAUSE_S = 0.05, 5.0
_CHUNK = 4096
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The only variables a guardian gets: an interpreter may not start without them."""


class Guardian:
    """Our ends of the pipes. The guardian starts with the first child."""

    def __init__(self) -> None:
        self.groups: dict[str, int] = {}
        """The group of each child, by its mark; 0 until it is known."""
        self._spared: dict[str, int] = {}
        """The seconds for which children may outlive us, by their marks."""
        self._state = threading.Condition()
        self._popen: subprocess.Popen[bytes] | None = None
        self.pipe = self._replies = -1
        """The pipes that carry notes about children, and their confirmations."""
        self._sent = self._confirmed = 0
        """The numbers of notes to this guardian, and of those that it has confirmed."""
        self._thread: threading.Thread | None = None
        self._is_wanted = False
        self._is_running = False
        self._ends = 0
        """How many guardians have ended, or could not be started."""
        self._problem: OSError | None = None
        """The reason why the last one could not be started."""
        self._is_hooked = False
        self._file = ChildrenFile()

    @property
    def pid(self) -> int | None:
        """The guardian's pid, if one runs."""
        return self._popen.pid if self._popen is not None and self._is_running else None

    def announce(self) -> str:
        """Return a mark for a child that is about to start; the guardian ends all its bearers."""
        mark = os.urandom(8).hex()
        with self._state:
            self.groups[mark] = 0
            self._send(self._note(mark))
        return mark

    def wait_until_known(self) -> None:
        """Wait until a guardian knows all announced children; raise OSError if none can run.

        Children start all the same where there is no interpreter to run a guardian.
        """
        if not sys.executable or getattr(sys, "frozen", False):
            return
        with self._state:
            self._ensure_thread()
            for _ in range(_TRIES):
                if self._is_confirmed():
                    return
            problem = self._problem
        if problem is None:
            raise OSError(
                "the process that ends servers after Portico fails to start; was Portico "
                f"upgraded or removed? Restart Portico, or see `{sys.executable} {_PROGRAM}`"
            )
        if not isinstance(problem, FileNotFoundError | PermissionError):
            raise problem

    def _is_confirmed(self) -> bool:
        """Wait for the guardian, started if necessary; return False if it has ended or failed to
        start. A guardian that does not answer is killed."""

        def is_known() -> bool:
            return self._is_running and self._confirmed >= self._sent

        if not self._is_running:
            self._is_wanted = True
            self._state.notify_all()
        before = self._ends
        if not self._state.wait_for(lambda: is_known() or self._ends != before, ANSWER_S):
            _kill_all(self._popen)
        return is_known()

    def register(self, mark: str, group: int) -> None:
        """Record the process group of the child with this mark."""
        with self._state:
            self.groups[mark] = group
            self._send(self._note(mark))
            if group:
                self._file.add(mark, group)

    def spare(self, mark: str, seconds: float) -> None:
        """Let a child outlive us for this long."""
        with self._state:
            if mark in self.groups:
                self._spared[mark] = int(seconds)
                self._send(self._note(mark))

    def _note(self, mark: str) -> str:
        return f"+{mark} {self.groups[mark]} {self._spared.get(mark, 0)}\n"

    def forget(self, mark: str) -> None:
        """Forget a child that has ended with its group; its pid may be reused."""
        with self._state:
            self._spared.pop(mark, None)
            if self.groups.pop(mark, None) is not None:
                self._send(f"-{mark}\n")
                self._file.remove(mark)

    def _send(self, line: str) -> None:
        if self._popen is None:
            return
        self._sent += 1
        try:
            os.write(self.pipe, line.encode())
        except BlockingIOError:  # it has stopped reading
            _kill_all(self._popen)
        except OSError:
            pass  # it has died; the next one receives all children

    def _ensure_thread(self) -> None:
        self._hook()
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._supervise, name=GUARDIAN_NAME, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        self._thread = thread

    def _supervise(self) -> None:
        """Keep a guardian running while there are children; runs in the thread."""
        failures = 0
        with self._state:
            while True:
                self._state.wait_for(lambda: self._is_wanted)
                began = time.monotonic()
                popen = self._start()
                self._is_wanted = False
                if popen is not None:
                    self._is_running = True
                    self._read_confirmations(popen)
                    if self._popen is not popen:
                        return  # we are exiting
                    self._is_running = False
                self._ends += 1
                self._state.notify_all()
                failures = 0 if time.monotonic() - began > _MIN_LIFETIME_S else failures + 1
                if failures > 1:
                    self._state.wait(min(_MAX_PAUSE_S, _PAUSE_S * 2**failures))
                self._is_wanted = self._is_wanted or bool(self.groups)

    def _read_confirmations(self, popen: "subprocess.Popen[bytes]") -> None:
        """Count them until the guardian ends."""
        replies = self._replies
        while True:
            self._state.release()
            try:
                data = os.read(replies, _CHUNK)
            except OSError:
                data = b""
            finally:
                self._state.acquire()
            if not data or self._popen is not popen:
                return
            self._confirmed += len(data)
            self._state.notify_all()

    def _start(self) -> "subprocess.Popen[bytes] | None":
        """Start a guardian that knows all children, then end the previous one."""
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            try:
                notes, pipe = _pipe(theirs, ours)
                replies, confirmations = _pipe(ours, theirs)
                popen = _run(notes, confirmations)
            except OSError as error:
                self._problem = error
                return None
            ours.pop_all()
        with contextlib.suppress(OSError):  # it has died already: the thread will notice
            os.write(pipe, "".join(map(self._note, self.groups)).encode())
        os.set_blocking(pipe, False)
        self._drop(kill=True)
        self._popen, self.pipe, self._replies, self._problem = popen, pipe, replies, None
        self._sent, self._confirmed = len(self.groups), 0
        return popen

    def _hook(self) -> None:
        import atexit

        if not self._is_hooked:
            self._is_hooked = True
            atexit.register(self.at_exit)
            # A copy of the pipe in a fork of ours would hide our end from the guardian.
            os.register_at_fork(after_in_child=self._after_fork)

    def at_exit(self) -> None:
        """End our part: the guardian ends the children that are left."""
        with self._state:
            if self.groups and self.pid is None:
                self._start()  # to end a child that was not closed
            popen, self._popen = self._popen, None
            if popen is not None:
                os.close(self.pipe)
                if not self.groups:  # then it exits immediately
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        popen.wait(_GRACE_S)
                popen.returncode = popen.returncode or 0  # it is meant to outlive us
            self._file.close()

    def _after_fork(self) -> None:
        self._state = threading.Condition()
        self.groups.clear()
        self._spared.clear()
        self._thread, self._is_wanted, self._is_running = None, False, False
        self._file.drop()
        self._drop(kill=False)

    def _drop(self, kill: bool) -> None:
        popen, self._popen = self._popen, None
        if popen is None:
            return
        if kill:  # a stopped one would end the groups once its pipe closes
            _kill_all(popen)
            popen.wait()
        os.close(self.pipe)
        os.close(self._replies)
        popen.returncode = popen.returncode or 0  # it is meant to outlive us


GUARDIAN = Guardian()
"""One for all children of this process."""


def program(name: str, *words: object) -> list[str]:
    """Return the command of a guardian or keeper."""
    return [sys.executable, "-I", "-S", _PROGRAM, name, *map(str, words)]


def program_variables() -> dict[str, str]:
    """Return the environment of a guardian or keeper."""
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}


def _run(notes: int, confirmations: int) -> "subprocess.Popen[bytes]":
    # Blocked from the start: a signal to our whole group must not end it first.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
    try:
        return subprocess.Popen(
            program(GUARDIAN_NAME, os.getpid(), os.environ.get(MARK, "")),
            stdin=notes,
            stdout=confirmations,
            # A reader that waits for the end of our output must not wait for the guardian.
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=program_variables(),
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _pipe(readers: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    """Return the two ends of a pipe, each to be closed by its stack."""
    reader, writer = os.pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    return reader, writer


def _kill_all(popen: "subprocess.Popen[bytes] | None") -> None:
    """Kill a guardian and its twin."""
    if popen is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, signal.SIGKILL)
