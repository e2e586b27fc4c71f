"""An upstream that records all input and replays a script, both byte for byte.

    python -I -S tests/rigs/recorder.py (stdio | http) RECORDING SCRIPT [--json] [--modern]

RECORDING gets every line or body that came; RECORDING.sent what was answered, and over HTTP
RECORDING.heads the heads of the requests. A line of SCRIPT is `METHOD result JSON`,
`METHOD error JSON`, or `METHOD before MESSAGE`, which goes out before the answer, with the
request's progress token for $TOKEN. When a method has several answers they are given in turn, and
the last one again. With `--modern`, HTTP needs no session.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.door import Door
from tests.rigs.wire import Call, raw_member, serve_stdio

HELLO = (
    b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"recorder","version":"1"}}'
)


def recorded(path: Path) -> list[bytes]:
    """The messages of a recording, in order."""
    found, rest = [], path.read_bytes() if path.exists() else b""
    while rest:
        size, _, rest = rest.partition(b"\n")
        found.append(rest[: int(size)])
        rest = rest[int(size) + 1 :]
    return found


def writer(path: Path) -> Callable[[bytes], None]:
    """A function that adds to a recording; lengths tell its parts apart."""
    file = path.open("ab", buffering=0)
    lock = threading.Lock()

    def write(raw: bytes) -> None:
        with lock:
            file.write(b"%d\n%s\n" % (len(raw), raw))

    return write


class Script:
    """The scripted answers, by method."""

    def __init__(self, path: Path) -> None:
        self._answers: dict[str, list[tuple[bytes, bytes]]] = {"initialize": []}
        self._before: dict[str, list[bytes]] = {}
        for line in path.read_bytes().split(b"\n"):
            if not line.strip() or line.startswith(b"#"):
                continue
            method, kind, raw = line.split(b" ", 2)
            if kind == b"before":
                self._before.setdefault(method.decode(), []).append(raw)
            else:
                self._answers.setdefault(method.decode(), []).append((kind, raw))

    def messages(self, call: Call) -> list[bytes]:
        """All that goes out for a request, the answer last."""
        answers = self._answers.get(call.method)
        if answers is None:
            kind, raw = b"error", b'{"code":-32601,"message":"Method not found"}'
        elif not answers:
            kind, raw = b"result", HELLO
        else:
            kind, raw = answers.pop(0) if len(answers) > 1 else answers[0]
        answer = b'{"jsonrpc":"2.0","id":%s,"%s":%s}' % (call.id, kind, raw)
        token = progress_token(call)
        before = self._before.get(call.method, ())
        return [*(raw.replace(b"$TOKEN", token) for raw in before), answer]


def progress_token(call: Call) -> bytes:
    """The token of a request, as it was written."""
    params = raw_member(call.raw, "params") or b"{}"
    return raw_member(raw_member(params, "_meta") or b"{}", "progressToken") or b"null"


def main() -> None:
    """Serve as the arguments say."""
    over, recording = sys.argv[1], Path(sys.argv[2])
    script = Script(Path(sys.argv[3]))
    sent = writer(Path(f"{recording}.sent"))

    def handle(call: Call) -> None:
        if call.id is not None:
            for message in script.messages(call):
                sent(message)
                call.emit(message)

    if over == "stdio":
        serve_stdio(handle, heard=writer(recording))
    else:
        heads = writer(Path(f"{recording}.heads"))
        json, modern = "--json" in sys.argv, "--modern" in sys.argv
        Door(handle, writer(recording), heads=heads, json=json, modern=modern).serve()


if __name__ == "__main__":
    main()
