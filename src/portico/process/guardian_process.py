"""What the guardian process runs: it starts children for Portico, and ends them after it.

Two processes do this. The first one works; the second, its *twin*, is told the same and takes
over if the first is killed. Both end the children they know when Portico's end of the pipe closes.

A child is started with the clone flag that makes it Portico's own child, not the guardian's. So
Portico waits for it as for any other, the death of a guardian does not touch it, and the kernel
signals it when Portico dies. Portico cannot do this itself: it is large and has threads, so that a
fork takes tens of milliseconds in which nobody is served.

Imports are few, and of C modules where there are any, to keep the guardian small.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal, without its enums
import _socket
import errno
import marshal
import os
import select
import sys
import time

from portico.process.process_tree import ProcessTable, ProcessTree, start_of

TYPE_CHECKING = False  # as in typing, which is too large for the guardian
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Known = dict[str, tuple[int, int | None]]
    """By mark, a child's group and its start."""

_GRACE_S = 0.5
_KILL_S = 1.0
_POLL_S = 0.02
_KILL, _TERM = 9, 15  # the signal module brings a megabyte of enums
_CHUNK = 64 * 1024
_FILES = 6
"""A request to start a child has these files: what to run, its three streams, where to answer,
and the folder to begin from."""
_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
"""The number of the clone system call, by machine."""
CAN_START = sys.platform == "linux" and sys.maxsize > 2**32 and os.uname().machine in _CLONE
"""True if a guardian can start children here."""
_CLONE_PARENT, _PDEATHSIG, _SIGCHLD = 0x8000, 1, 17
_NOTES = 0
"""The pipe by which Portico tells of its children, one a line."""


def main() -> None:
    """Be the guardian until Portico is gone."""
    owner, channel = int(sys.argv[2]), int(sys.argv[4])
    known: Known = {}
    relay = _Relay(known, channel)
    serve = None
    if channel >= 0:
        os.set_inheritable(channel, False)  # children must not hold it
        try:
            serve = _Nursery(channel, owner).serve
        except (ImportError, OSError, AttributeError):  # Portico starts its children itself
            os.close(channel)
    for data in _heard(channel, serve):
        relay.pass_on(data)
        for line in relay.lines.split(data):
            _note(known, line)
    _end(known)
    relay.pass_on(b".\n")


def _heard(channel: int, serve: Callable[[], bool] | None) -> Iterator[bytes]:
    """What Portico writes, until its end; meanwhile its requests are served."""
    poll = select.poll()
    poll.register(_NOTES, select.POLLIN)
    if serve is not None:
        poll.register(channel, select.POLLIN)
    while True:
        for fd, _ in poll.poll():  # notes first: a child is announced before it is asked for
            if fd == _NOTES:
                data = os.read(_NOTES, _CHUNK)
                if not data:
                    return
                yield data
            elif serve is not None and not serve():
                poll.unregister(channel)


def _note(known: Known, line: bytes) -> None:
    mark, _, group = line[1:].decode().partition(" ")
    if line[:1] == b"+":
        known[mark] = int(group), start_of(int(group))
    elif line[:1] == b"-":
        known.pop(mark, None)
    elif line[:1] == b".":  # the first guardian has ended them all
        os._exit(0)


class _Lines:
    """Whole lines, of what comes in pieces."""

    def __init__(self) -> None:
        self.rest = b""

    def split(self, data: bytes) -> list[bytes]:
        *lines, self.rest = (self.rest + data).split(b"\n")
        return lines


# The twin.


class _Relay:
    """The pipe to the twin, and another twin if it has died."""

    def __init__(self, known: Known, channel: int) -> None:
        self.lines = _Lines()
        self._known = known
        self._channel = channel
        self._pipe = self._twin()

    def pass_on(self, data: bytes) -> None:
        """Have the twin know it too."""
        try:
            os.write(self._pipe, data)
        except OSError:
            os.close(self._pipe)
            self._pipe = self._twin()
            os.write(self._pipe, self.lines.rest + data)

    def _twin(self) -> int:
        """Start a second guardian, whose parent is gone so that it is nobody's to wait for."""
        reader, writer = os.pipe()
        child = os.fork()
        if child:
            os.close(reader)
            os.waitpid(child, 0)
            return writer
        if os.fork():
            os._exit(0)
        os.close(writer)
        if self._channel >= 0:
            os.close(self._channel)  # else requests would wait for the twin
        for pipe in (reader, _NOTES):  # once the first guardian is gone, the twin is the guardian
            lines = _Lines()
            while data := os.read(pipe, _CHUNK):
                for line in lines.split(data):
                    _note(self._known, line)
        _end(self._known)
        os._exit(0)


# Ending children.


def _end(known: Known) -> None:
    # A leader that started later than the one we knew has only got its number.
    leaders = {group for group, start in known.values() if start_of(group) in {start, None}}
    family = ProcessTree(leaders - {0}, set(known))
    if known and family.look(ProcessTable([family])):
        family.signal(_TERM)
        _until_gone(family, 0, _GRACE_S)
        _until_gone(family, _KILL, _KILL_S)


def _until_gone(family: ProcessTree, number: int, within_s: float) -> None:
    limit = time.monotonic() + within_s
    while family.look(ProcessTable([family])) and time.monotonic() < limit:
        family.signal(number)
        time.sleep(_POLL_S)


# Starting children.


class _Nursery:
    """Starts a child for each request that comes over the channel."""

    def __init__(self, channel: int, owner: int) -> None:
        self._libc = _libc()
        self._clone = _CLONE[os.uname().machine]
        self._owner = owner
        self._requests = _socket.socket(fileno=channel)

    def serve(self) -> bool:
        """Start one child; False if nobody can ask for more."""
        space = _socket.CMSG_SPACE(4 * _FILES)
        data, extra, *_ = self._requests.recvmsg(1, space, _socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        files = [fd for *_, numbers in extra for fd in memoryview(numbers).cast("i").tolist()]
        if len(files) == _FILES:
            child = self._libc.syscall(self._clone, _CLONE_PARENT | _SIGCHLD, 0, 0, 0, 0)
            if child == 0:
                _become(files, self._libc, self._owner)
            if child < 0:
                os.write(files[4], b"!%d\n" % self._libc.get_errno())
        for fd in files:
            os.close(fd)
        return True


def _libc() -> Any:
    import ctypes

    libc: Any = ctypes.PyDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.get_errno = ctypes.get_errno
    return libc


def _become(files: list[int], libc: Any, owner: int) -> None:
    """Be the child: it answers with its number, and with an error if there is no program to run."""
    what, stdin, stdout, stderr, answer, folder = files
    code = errno.EINVAL
    try:
        os.write(answer, b"%d\n" % os.getpid())
        programs, argv, env, cwd = marshal.loads(_all_of(what))
        os.setsid()
        libc.prctl(_PDEATHSIG, _TERM, 0, 0, 0)
        if os.getppid() != owner:  # it died before it could be signalled
            os._exit(1)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them
            _signal.signal(number, _signal.SIG_DFL)
        os.fchdir(folder)
        for fd, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
            os.dup2(fd, number)
        if cwd:
            os.chdir(cwd)
        code = _run(programs, argv, env)
    except OSError as error:
        code = error.errno or code
    finally:
        try:
            os.write(answer, b"!%d\n" % code)
        finally:
            os._exit(127)


def _run(programs: list[bytes], argv: list[bytes], env: dict[bytes, bytes]) -> int:
    """Run the first that there is; of several errors, one that is not about a missing file."""
    code = errno.ENOENT
    for program in programs:
        try:
            os.execve(program, argv, env)  # noqa: S606  (never through a shell)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                code = error.errno or code
    return code


def _all_of(file: int) -> bytes:
    data = b""
    while more := os.read(file, _CHUNK):
        data += more
    return data
