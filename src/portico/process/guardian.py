"""Supervises the guardian: a second process that ends our children after our death.

A killed process cannot clean up. So the guardian learns of every child over a pipe, and ends those
that remain when the pipe closes. One thread starts it, waits for its exit and restarts it.
That thread never ends: the kernel would treat its end as the end of the children's parent.
"""

import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib import import_module

from portico.process.children_file import ChildrenFile
from portico.process.guardian_process import CAN_START
from portico.process.process_tree import GUARDIAN_NAME, MARK

_GRACE_S = 0.5
_START_S = 5.0
_MIN_LIFETIME_S = 1.0
"""A guardian that dies sooner than this is restarted with backoff."""
_PAUSE_S, _MAX_PAUSE_S = 0.05, 5.0
_MODULES = ("portico.process.process_tree", "portico.process.guardian_process")
# The guardian receives its modules compiled: compiling them would cost it a megabyte.
_BOOT = """
import marshal, os, sys
size, data = int(os.read(0, 8)), b""
while len(data) < size:
    data += os.read(0, size - len(data))
for name, code in marshal.loads(data):
    sys.modules[name] = type(sys)(name)
    exec(code, sys.modules[name].__dict__)
sys.modules[name].main()
os._exit(0)
"""
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The only variables a guardian gets: an interpreter may not start without them."""


class Guardian:
    """Our end of the pipe. The guardian starts with the first child."""

    def __init__(self) -> None:
        self.groups: dict[str, int] = {}
        """The group of each child, by its mark; 0 until it is known."""
        self._spared: dict[str, int] = {}
        """The seconds for which children may outlive us, by their marks."""
        self._state = threading.Condition()
        self._popen: subprocess.Popen[bytes] | None = None
        self.pipe = -1
        """The pipe that carries notes about children."""
        self._thread: threading.Thread | None = None
        self._is_wanted = False
        self._is_running = False
        self._is_hooked = False
        self._file = ChildrenFile()
        self.channel: socket.socket | None = None
        """The socket for requests to start children, if the guardian can."""

    @property
    def pid(self) -> int | None:
        """The guardian's pid, if one runs."""
        popen = self._popen
        return popen.pid if popen is not None and not _is_dead(popen) else None

    def announce(self) -> str:
        """Return a mark for a child that is about to start; the guardian ends all its bearers."""
        mark = os.urandom(8).hex()
        with self._state:
            self.groups[mark] = 0
            if self._is_running:
                self._send(self._note(mark))
            else:
                self._ensure_running()
        return mark

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

    def replace(self, channel: socket.socket, *, kill: bool) -> None:
        """Wait for a new guardian, or continue without one, after a request on it failed."""
        with self._state:
            if self.channel is not channel:
                return
            popen = self._popen
            if kill and popen is not None:
                _kill_all(popen)
            if kill or self.pid is None:
                self._state.wait_for(lambda: self.channel is not channel, _START_S)
            if self.channel is channel:
                self.channel = None  # it runs but cannot start children

    def _send(self, line: str) -> None:
        if self._popen is None:
            return
        try:
            os.write(self.pipe, line.encode())
        except BlockingIOError:  # it has stopped reading
            _kill_all(self._popen)
        except OSError:
            pass  # it has died; the next one receives all children

    def _ensure_running(self) -> None:
        """Make the thread start a guardian, and wait for the attempt."""
        self._hook()
        if self._thread is None:
            try:
                thread = threading.Thread(target=self._supervise, name=GUARDIAN_NAME, daemon=True)
                thread.start()
            except RuntimeError:  # no more threads; the next child tries again
                return
            self._thread = thread
        if not self._is_wanted:
            self._is_wanted = True
            self._state.notify_all()
            self._state.wait_for(lambda: not self._is_wanted, _START_S)

    def _supervise(self) -> None:
        """Keep a guardian running while there are children; runs in the thread."""
        failures = 0
        with self._state:
            while True:
                self._state.wait_for(lambda: self._is_wanted)
                began = time.monotonic()
                popen = self._start()
                self._is_wanted = False
                self._is_running = popen is not None
                self._state.notify_all()
                if popen is not None:
                    self._wait_for(popen)
                    if self._popen is not popen:
                        return  # we are exiting
                    self._is_running = False
                failures = 0 if time.monotonic() - began > _MIN_LIFETIME_S else failures + 1
                if failures > 1:
                    self._state.wait(min(_MAX_PAUSE_S, _PAUSE_S * 2**failures))
                self._is_wanted = self._is_wanted or bool(self.groups)

    def _wait_for(self, popen: "subprocess.Popen[bytes]") -> None:
        self._state.release()
        try:
            if hasattr(os, "waitid"):
                # As a zombie it keeps its pid.
                os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
            else:  # macOS
                popen.wait()
        except ChildProcessError:
            pass
        finally:
            self._state.acquire()

    def _start(self) -> "subprocess.Popen[bytes] | None":
        """Start a guardian that knows all children, then end the previous one."""
        code = _code()
        if code is None:
            return None
        with contextlib.ExitStack() as stack:
            ours = theirs = None
            try:
                if CAN_START:
                    ours, theirs = socket.socketpair()
                    stack.enter_context(theirs)
                popen = _run(theirs)
            except OSError:
                if ours is not None:
                    ours.close()
                return None  # starting the child will fail with a better error
        known = "".join(map(self._note, self.groups))
        assert popen.stdin is not None
        pipe = popen.stdin.fileno()
        with contextlib.suppress(OSError):  # it has died already: the thread will notice
            os.write(pipe, b"%8d" % len(code) + code)
            os.write(pipe, known.encode())
        os.set_blocking(pipe, False)
        if ours is not None:
            ours.setblocking(False)
        self._drop(kill=True)
        self._popen, self.pipe, self.channel = popen, pipe, ours
        return popen

    def _hook(self) -> None:
        import atexit

        if not self._is_hooked:
            self._is_hooked = True
            atexit.register(self._at_exit)
            # A copy of the pipe in a fork of ours would hide our end from the guardian.
            os.register_at_fork(after_in_child=self._after_fork)

    def _at_exit(self) -> None:
        with self._state:
            if self.groups and self.pid is None:
                self._start()  # to end a child that was not closed
            popen = self._popen
            if popen is not None and popen.stdin is not None:
                popen.stdin.close()
                if not self.groups:  # then it exits immediately
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        popen.wait(_GRACE_S)
            self._drop(kill=False)
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
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()
        if popen is None:
            return
        if kill:  # a stopped one would end the groups once its pipe closes
            _kill_all(popen)
            popen.wait()
        if popen.stdin is not None:
            popen.stdin.close()
        popen.returncode = popen.returncode or 0  # it is meant to outlive us


GUARDIAN = Guardian()
"""One for all children of this process."""


def _code() -> bytes | None:
    """Return the guardian's modules, compiled; None without an interpreter to run them."""
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    modules = []
    for name in _MODULES:
        spec = import_module(name).__spec__
        get_code = getattr(spec and spec.loader, "get_code", None)
        if get_code is None:
            return None
        modules.append((name, get_code(name)))
    return marshal.dumps(modules)


def _run(channel: socket.socket | None) -> "subprocess.Popen[bytes]":
    number = -1 if channel is None else channel.fileno()
    named = (GUARDIAN_NAME, str(os.getpid()), os.environ.get(MARK, ""), str(number))
    # Blocked from the start: a signal to our whole group must not end it first.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, *named],
            stdin=subprocess.PIPE,
            # A reader that waits for the end of our output must not wait for the guardian.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            pass_fds=() if channel is None else (number,),
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _is_dead(popen: "subprocess.Popen[bytes]") -> bool:
    if not hasattr(os, "waitid"):  # macOS
        return popen.poll() is not None
    try:
        return os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _kill_all(popen: "subprocess.Popen[bytes]") -> None:
    """Kill a guardian and its twin."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)
