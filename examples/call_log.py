"""Middleware that keeps a log of all tool calls: a line of JSON for each, without any values.

Put it in front of any components, or of the whole gateway with `links` in portico.toml:

    portico run examples/call_log.py examples/quickstart.py

    [gateway]
    links = ["examples/call_log.py"]

The log is the file that the variable CALL_LOG names, or `calls.jsonl` beside this file.
"""

import json
import os
import time
from datetime import datetime
from pathlib import Path

from portico import Answer, NextCall, Response, ToolRequest, after

LOG = Path(os.environ.get("CALL_LOG") or Path(__file__).with_name("calls.jsonl"))


def on_call(call: ToolRequest, next: NextCall) -> Answer:
    """Write down each call when its answer is there."""
    started = time.perf_counter()

    def write(response: Response) -> Response:
        line = {
            "time": datetime.now().astimezone().isoformat(timespec="milliseconds"),
            "tool": call.name,
            "outcome": outcome(response),
            "ms": round(1000 * (time.perf_counter() - started), 1),
        }
        with LOG.open("a") as log:
            log.write(json.dumps(line) + "\n")
        return response

    return after(next(call), write)


def outcome(response: Response) -> str:
    """Return how a call ended: the error of the protocol, or the result's own."""
    if response.error:
        return f"error {response.code}"
    result = response.decode()["result"]
    if result.get("resultType") == "input_required":
        return "asks the user"
    return "tool error" if result.get("isError") else "ok"
