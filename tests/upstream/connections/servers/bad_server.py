"""A stdio server that misbehaves in the way its first argument names. Only the standard library."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

MODE = sys.argv[1]
OUT = sys.stdout.buffer


def write(data: bytes) -> None:
    OUT.write(data)
    OUT.flush()


def send(message: dict[str, Any]) -> None:
    write(json.dumps(message).encode() + b"\n")


def answer(id: Any, text: str = "ok") -> None:
    result = {"content": [{"type": "text", "text": text}]}
    send({"jsonrpc": "2.0", "id": id, "result": result})


def complain(words: str) -> None:
    os.write(2, f"{words}\n".encode())


def garbage(id: Any) -> None:
    write(b"listening on nothing\n\n   \n")
    write(b'DEBUG got {"jsonrpc": "2.0", "id": %d, "method": "x"}\n' % id)
    write(b"\xff\xfe not text at all\n")
    write(b'{"jsonrpc": "2.0", "id"\n[1, 2, 3]\n"text"\n')
    answer(id)


def huge(id: Any) -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "result": "%s"}\n' % (id, b"x" * 2_000_000))


def huge_id_last(id: Any) -> None:
    write(b'{"result": "%s", "jsonrpc": "2.0", "id": %d}\n' % (b"x" * 2_000_000, id))


def endless(_: Any) -> None:
    while True:
        write(b"x" * 65536)


def half_a_line(id: Any) -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "res' % id)
    os._exit(0)


def wrong_ids(id: Any) -> None:
    for wrong in (str(id), id + 1000, None, float(id), [id]):
        answer(wrong, f"for {wrong!r}")
    send({"jsonrpc": "2.0", "result": {}})
    answer(id, "the first")
    answer(id, "the second")


def dies(_: Any) -> None:
    complain("loading the model")
    complain("fatal: token=SECRET-VALUE is bad \x1b[31m")
    os._exit(3)


def killed(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def silent(_: Any) -> None:
    pass


def floods_stderr(id: Any) -> None:
    for _ in range(200):
        os.write(2, b"noise " * 20_000 + b"\n")
    answer(id)


def floods_stdout(_: Any) -> None:
    for _ in range(1000):
        write(b"noise\n" * 1000)


def closes_stdout(_: Any) -> None:
    os.close(1)
    time.sleep(60)


def broken_utf8(id: Any) -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "result": {"x": "\xff"}}\n' % id)


def surrogate(id: Any) -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "result": {"x": "\\ud800"}}\n' % id)


def deep(id: Any) -> None:
    nested = b"[" * 100_000 + b"]" * 100_000
    write(b'{"jsonrpc": "2.0", "id": %d, "result": {"x": %s}}\n' % (id, nested))


def not_a_number(id: Any) -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "result": {"x": NaN}}\n' % id)


def byte_order_mark(id: Any) -> None:
    write(b"\xef\xbb\xbf")
    answer(id)


def neither(id: Any) -> None:
    send({"jsonrpc": "2.0", "id": id})


def stops_reading(_: Any) -> None:
    time.sleep(60)


HANDLERS: dict[str, Callable[[Any], None]] = {
    "garbage": garbage,
    "huge": huge,
    "huge-id-last": huge_id_last,
    "endless": endless,
    "half-a-line": half_a_line,
    "wrong-ids": wrong_ids,
    "dies": dies,
    "killed": killed,
    "silent": silent,
    "floods-stderr": floods_stderr,
    "floods-stdout": floods_stdout,
    "closes-stdout": closes_stdout,
    "broken-utf8": broken_utf8,
    "surrogate": surrogate,
    "deep": deep,
    "nan": not_a_number,
    "bom": byte_order_mark,
    "neither": neither,
    "stops-reading": stops_reading,
}


def with_grandchild(fifo: str) -> None:
    """Start a process that keeps a FIFO open while it lives, and ignores signals."""
    code = (
        "import signal, sys, time;"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "f = open(sys.argv[1], 'wb', 0); f.write(b'alive'); time.sleep(60)"
    )
    subprocess.Popen([sys.executable, "-I", "-S", "-c", code, fifo], close_fds=True)


def main() -> None:
    if MODE in ("stubborn", "leaves-one-behind"):
        with_grandchild(sys.argv[2])
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "exits-at-once":
        complain("no API key")
        sys.exit(2)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        method, id = message["method"], message.get("id")
        if method == "initialize":
            capabilities: dict[str, Any] = {"tools": {}}
            send({"jsonrpc": "2.0", "id": id, "result": {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": {"name": MODE, "version": "1"},
            }})  # fmt: skip
        elif method == "server/discover" and MODE == "dies-of-discover":
            complain("expected initialize")
            os._exit(1)
        elif method == "server/discover" and MODE == "ignores-discover":
            continue
        elif method == "tools/call":
            HANDLERS.get(MODE, answer)(id)
        elif method == "tools/list":
            tools = [{"name": "act", "inputSchema": {"type": "object"}}]
            send({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}})
        elif id is not None:
            error = {"code": -32601, "message": "method not found"}
            send({"jsonrpc": "2.0", "id": id, "error": error})
    if MODE == "stubborn":
        time.sleep(60)


if __name__ == "__main__":
    main()
