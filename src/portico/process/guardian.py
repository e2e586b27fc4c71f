"""Keeps a guardian: a second process that ends our children once we are gone.

A process that is killed can clean up nothing. So a small one hears of every child over a pipe, and
ends those it still knows when the pipe closes. One thread starts it, waits for its end, and starts
another. That thread never ends: the kernel would take its end for the end of the children's parent.
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

from portico.process.guardian_process import CAN_START
from portico.process.process_tree import GUARDIAN_NAME, MARK

_GRACE_S = 0.5
_START_S = 5.0
_LIVED_S = 1.0
"""A guardian that dies sooner than this is started again after a pause."""
_PAUSE_S, _MAX_PAUSE_S = 0.05, 5.0
_MODULES = ("portico.process.process_tree", "portico.process.guardian_process")
# To compile its modules would cost the guardian a megabyte, so that it gets them compiled.
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
_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All of our environment that a guardian gets: an interpreter may not start without."""


class Guardian:
    """Our end of the pipe. The guardian starts with the first child."""

    def __init__(self) -> None:
        self.groups: dict[str, int] = {}
        """The group of each child, by its mark; 0 until that is known."""
        self._state = threading.Condition()
        self._popen: subprocess.Popen[bytes] | None = None
        self.pipe = -1
        """Where the guardian is told of children."""
        self._thread: threading.Thread | None = None
        self._wanted = False
        self._runs = False
        self._hooked = False
        self.channel: socket.socket | None = None
        """Where children are asked for, if the guardian can start them."""

    @property
    def pid(self) -> int | None:
        """The guardian's number, if one runs."""
        popen = self._popen
        return popen.pid if popen is not None and not _is_dead(popen) else None

    def expect(self) -> str:
        """A mark for a child that is about to start; every process with it will be ended."""
        mark = os.urandom(8).hex()
        with self._state:
            self.groups[mark] = 0
            if self._runs:
                self._tell(f"+{mark} 0\n")
            else:
                self._begin()
        return mark

    def register(self, mark: str, group: int) -> None:
        """The child with this mark leads this group."""
        with self._state:
            self.groups[mark] = group
            self._tell(f"+{mark} {group}\n")

    def forget(self, mark: str) -> None:
        """This child and its group are gone; their number may soon be another's."""
        with self._state:
            if self.groups.pop(mark, None) is not None:
                self._tell(f"-{mark}\n")

    def renew(self, channel: socket.socket, *, kill: bool) -> None:
        """No child came of a request on this channel: wait for a new guardian, or do without."""
        with self._state:
            if self.channel is not channel:
                return
            popen = self._popen
            if kill and popen is not None:
                _kill_all(popen)
            if kill or self.pid is None:
                self._state.wait_for(lambda: self.channel is not channel, _START_S)
            if self.channel is channel:
                self.channel = None  # it runs, and cannot start anything

    def _tell(self, line: str) -> None:
        if self._popen is None:
            return
        try:
            os.write(self.pipe, line.encode())
        except BlockingIOError:  # it reads nothing any more
            _kill_all(self._popen)
        except OSError:
            pass  # it has died; the next one is told of all children

    def _begin(self) -> None:
        """Have the thread start a guardian, and wait until it has tried."""
        self._hook()
        if self._thread is None:
            try:
                thread = threading.Thread(target=self._keep, name=GUARDIAN_NAME, daemon=True)
                thread.start()
            except RuntimeError:  # no more threads; the next child tries again
                return
            self._thread = thread
        if not self._wanted:
            self._wanted = True
            self._state.notify_all()
            self._state.wait_for(lambda: not self._wanted, _START_S)

    def _keep(self) -> None:
        """In the thread: have a guardian run as long as there are children."""
        failures = 0
        with self._state:
            while True:
                self._state.wait_for(lambda: self._wanted)
                began = time.monotonic()
                popen = self._start()
                self._wanted = False
                self._runs = popen is not None
                self._state.notify_all()
                if popen is not None:
                    self._wait_for(popen)
                    if self._popen is not popen:
                        return  # we are leaving
                    self._runs = False
                failures = 0 if time.monotonic() - began > _LIVED_S else failures + 1
                if failures > 1:
                    self._state.wait(min(_MAX_PAUSE_S, _PAUSE_S * 2**failures))
                self._wanted = self._wanted or bool(self.groups)

    def _wait_for(self, popen: "subprocess.Popen[bytes]") -> None:
        self._state.release()
        try:
            if hasattr(os, "waitid"):
                # It stays a zombie: as long as it does, its number is its own.
                os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
            else:  # macOS
                popen.wait()
        except ChildProcessError:
            pass
        finally:
            self._state.acquire()

    def _start(self) -> "subprocess.Popen[bytes] | None":
        """Start a guardian that knows all children, and only then end the one before."""
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
                return None  # the child will say better what there is too little of
        known = "".join(f"+{mark} {group}\n" for mark, group in self.groups.items())
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

        if not self._hooked:
            self._hooked = True
            atexit.register(self._leave)
            # A copy of the pipe in a fork of ours would hide our end from the guardian.
            os.register_at_fork(after_in_child=self._forked)

    def _leave(self) -> None:
        with self._state:
            if self.groups and self.pid is None:
                self._start()  # a child was not closed, and would be left
            popen = self._popen
            if popen is not None and popen.stdin is not None:
                popen.stdin.close()
                if not self.groups:  # then it goes at once, and leaves no trace of us
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        popen.wait(_GRACE_S)
            self._drop(kill=False)

    def _forked(self) -> None:
        self._state = threading.Condition()
        self.groups.clear()
        self._thread, self._wanted, self._runs = None, False, False
        self._drop(kill=False)

    def _drop(self, kill: bool) -> None:
        popen, self._popen = self._popen, None
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()
        if popen is None:
            return
        if kill:  # else one that was only asleep would end the groups once its pipe closes
            _kill_all(popen)
            popen.wait()
        if popen.stdin is not None:
            popen.stdin.close()
        popen.returncode = popen.returncode or 0  # it may outlive us: that is what it is for


GUARDIAN = Guardian()
"""One for all children of this process."""


def _code() -> bytes | None:
    """The modules of the guardian, compiled; None if there is no interpreter to run them."""
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
    # Blocked from its first moment on: a polite signal to all of us must not end it first.
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
            env={name: os.environ[name] for name in _LOADER if name in os.environ},
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
