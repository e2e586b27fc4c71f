"""An agent that takes one line of JSON-RPC and returns one; its argument says how it behaves."""

import json
import sys
import threading


def main() -> None:
    """Answer one request."""
    how = sys.argv[1]
    request = json.loads(sys.stdin.readline())
    assert sys.stdin.read() == ""  # there is only one
    answer: dict[str, object] = {"jsonrpc": "2.0", "id": request["id"]}
    if how == "hang":
        threading.Event().wait()
    if how == "exit":
        sys.stderr.write("no credentials\n")
        sys.exit(5)
    if how == "error":
        answer["error"] = {"code": -32603, "message": "no model"}
    elif how == "huge":
        answer["result"] = "x" * (33 << 20)
    else:
        answer["result"] = json.loads(how) if how != "echo" else json.dumps(request)
    progress = {"jsonrpc": "2.0", "method": "progress", "params": {"task_id": "1", "percent": 50}}
    sys.stdout.write("starting up\n" + json.dumps(progress) + "\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
