"""A server with one trouble: it hangs, exits, is stuck in calls, or cannot list something."""

import json
import signal
import sys
import time

_INTRODUCTION = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}, "prompts": {}},
    "serverInfo": {"name": "troubled", "version": "1.0"},
}
_RESULTS = {
    "initialize": _INTRODUCTION,
    "tools/list": {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]},
    "prompts/list": {"prompts": []},
}
_UNLISTED = {"unlisted": ("prompts/list",), "listless": ("prompts/list", "tools/list")}


def _complain(words: str) -> None:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def main(trouble: str) -> None:
    if trouble == "hangs":
        _complain("waiting for the database at db.local")
        time.sleep(3600)
    if trouble == "exits":
        _complain("reading the config\nFATAL: no license key")
        sys.exit(7)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method = message["method"]
        if method == "tools/call":
            _complain("stuck on the lock of orders")
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if method in _RESULTS and method not in _UNLISTED.get(trouble, ()):
            answer["result"] = _RESULTS[method]
        else:
            answer["error"] = {"code": -32603, "message": f"{method} is not possible"}
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
    if trouble == "lingers":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1])
