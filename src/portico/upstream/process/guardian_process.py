"""The guardian process: it ends the children of Portico after Portico's death.

Two processes do this. The first works; the second, its *twin*, receives the same notes and takes
over if the first is killed. Both end the children they know when Portico's end of the pipe closes.
"""

import os
import time
from signal import SIGKILL, SIGTERM

from portico.upstream.process.process_tree import ProcessTable, ProcessTree, start_of

Known = dict[str, tuple[int, int | None, int]]
"""By mark, a child's group and start time, and the seconds for which it may outlive Portico; the
group is 0 until the child has started."""

_GRACE_S = 0.5
_KILL_S = 1.0
_POLL_S = 0.02
_START_S = 0.3
"""The time for a child that was just being started to show its mark."""
_SPARED_POLL_S = 0.5
_CHUNK = 64 * 1024
_NOTES, _REPLIES = 0, 1
"""The pipe for Portico's notes about its children, one per line, and the one to confirm them."""


def main() -> None:
    """Run the guardian until Portico ends."""
    known: Known = {}
    relay = _Relay(known)
    while data := os.read(_NOTES, _CHUNK):
        relay.forward(data)
        lines = relay.lines.split(data)
        for line in lines:
            _record(known, line)
        _confirm(len(lines))
    _end_all(known)
    relay.forward(b".\n")
    os._exit(0)


def _confirm(count: int) -> None:
    """Confirm further notes to Portico: guardian and twin know their children."""
    try:
        os.write(_REPLIES, b"." * count)
    except OSError:
        return  # it has ended


def _record(known: Known, line: bytes) -> None:
    mark, *numbers = line[1:].decode().split(" ")
    if line[:1] == b"+":
        group, spared_s = map(int, numbers)
        known[mark] = group, start_of(group), spared_s
    elif line[:1] == b"-":
        known.pop(mark, None)
    elif line[:1] == b".":  # the first guardian has ended them all
        os._exit(0)


class _Lines:
    """Splits a stream into whole lines."""

    def __init__(self) -> None:
        self.rest = b""

    def split(self, data: bytes) -> list[bytes]:
        *lines, self.rest = (self.rest + data).split(b"\n")
        return lines


# The twin.


class _Relay:
    """The pipe to the twin, which is replaced if it dies."""

    def __init__(self, known: Known) -> None:
        self.lines = _Lines()
        self._known = known
        self._pipe = self._twin()

    def forward(self, data: bytes) -> None:
        """Send the notes to the twin too."""
        try:
            os.write(self._pipe, data)
        except OSError:
            os.close(self._pipe)
            self._pipe = self._twin()
            os.write(self._pipe, self.lines.rest + data)

    def _twin(self) -> int:
        """Start a second guardian, orphaned so that no process has to wait for it."""
        reader, writer = os.pipe()
        child = os.fork()
        if child:
            os.close(reader)
            os.waitpid(child, 0)
            return writer
        if os.fork():
            os._exit(0)
        os.close(writer)
        os.close(_REPLIES)  # Portico waits for its end, which is that of the first guardian
        for pipe in (reader, _NOTES):  # the twin takes over once the first guardian has ended
            lines = _Lines()
            while data := os.read(pipe, _CHUNK):
                for line in lines.split(data):
                    _record(self._known, line)
        _end_all(self._known)
        os._exit(0)


# Ending children.


def _end_all(known: Known) -> None:
    """End all children, also those that were just being started."""
    end_children(known)
    starting = {mark: one for mark, one in known.items() if not one[0]}
    if starting:
        time.sleep(_START_S)
        end_children(starting)


def end_children(known: Known, *, by_mark: bool = True) -> None:
    """End all children: first those that may not outlive Portico; and all that have their marks."""
    spared_s = 0
    for longest_s in sorted({one[2] for one in known.values()}):
        some = {mark: one for mark, one in known.items() if one[2] == longest_s}
        # A leader with another start time has only reused the pid.
        leaders = {group for group, start, _ in some.values() if start_of(group) in {start, None}}
        tree = ProcessTree(leaders - {0}, set(some) if by_mark else set())
        if not tree.find_descendants(ProcessTable([tree])):
            continue
        _until_gone(tree, 0, longest_s - spared_s, _SPARED_POLL_S)
        spared_s = longest_s
        tree.signal(SIGTERM)
        _until_gone(tree, 0, _GRACE_S)
        _until_gone(tree, SIGKILL, _KILL_S)


def _until_gone(tree: ProcessTree, number: int, within_s: float, poll_s: float = _POLL_S) -> None:
    limit = time.monotonic() + within_s
    while time.monotonic() < limit and tree.find_descendants(ProcessTable([tree])):
        tree.signal(number)
        time.sleep(poll_s)
