"""A server that handles large calls slowly and keeps nothing of them.

    python -I -S tests/rigs/laggard.py late|slow COUNT

After the first call, whose arguments are small, `late` reads so many calls and answers all of them
a second later. `slow` reads nothing for a second, then little at a time, and answers each call.
"""

import os
import re
import sys
import time

MODE, COUNT = sys.argv[1], int(sys.argv[2])
HEAD = 512
"""So much of a line is looked at."""
PIECE, REST_S = 256 * 1024, 0.005
PAUSE_S = 1.0
ID = re.compile(rb'"id":([^,}]+)')
TOOL = b'{"name":"take","inputSchema":{"type":"object"}}'
RESULTS = {
    b"initialize": b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"laggard","version":"1"}}',
    b"tools/list": b'{"tools":[' + TOOL + b"]}",
    b"tools/call": b'{"content":[{"type":"text","text":"taken"}]}',
}


class Laggard:
    """The calls without an answer so far."""

    def __init__(self) -> None:
        self.late: list[bytes] = []
        self.calls = 0

    def hear(self, head: bytes) -> None:
        """Take in the beginning of one message."""
        found = ID.search(head)
        method = next((name for name in RESULTS if b'"%b"' % name in head), b"")
        if found is None:
            return
        self.calls += method == b"tools/call"
        if method == b"tools/call" and MODE == "late" and self.calls > 1:
            self.late.append(found[1])
            if len(self.late) == COUNT:
                time.sleep(PAUSE_S)
                for id in self.late:
                    answer(id, method)
                self.late.clear()
        else:
            answer(found[1], method)
        if MODE == "slow" and self.calls == 1:
            time.sleep(PAUSE_S)


def answer(id: bytes, method: bytes) -> None:
    """Answer one request."""
    error = b'"error":{"code":-32601,"message":"unknown"}'
    outcome = b'"result":' + RESULTS[method] if method else error
    os.write(1, b'{"jsonrpc":"2.0","id":%b,%b}\n' % (id, outcome))


def main() -> None:
    """Serve until stdin ends."""
    laggard, head = Laggard(), b""
    while piece := os.read(0, PIECE):
        *ended, tail = piece.split(b"\n")
        for line in ended:
            laggard.hear(head + line[:HEAD])
            head = b""
        head = (head + tail[:HEAD])[:HEAD]
        if MODE == "slow" and laggard.calls:
            time.sleep(REST_S)


if __name__ == "__main__":
    main()
