"""Middleware that limits how often each tool may be called per minute.

Put it in front of any components, or of the whole gateway with `links` in portico.toml:

    portico run examples/rate_limit.py "npx -y @modelcontextprotocol/server-everything"

    [gateway]
    links = ["examples/rate_limit.py"]

All clients of a process share the limits, and each round of a call that asks the user counts.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from math import ceil

from portico import Answer, McpError, NextCall, OnCall, ToolRequest

PER_MINUTE = {"*search*": 10, "*": 60}
"""Calls per minute, by patterns of names; the first pattern that matches counts."""
TOO_MANY_CALLS = -31429
"""The error's code; those from -32768 to -32000 belong to the protocol."""


def limited(per_minute: Mapping[str, int], clock: Callable[[], float] = time.monotonic) -> OnCall:
    """Refuse calls over the limit of their tool, with the time to wait."""
    calls: deque[tuple[float, str]] = deque()  # those of the last minute
    counts: Counter[str] = Counter()

    # Nothing else runs between the check and the count, so that no call too many gets through.
    def check(tool: str, limit: int) -> None:
        now = clock()
        while calls and now - calls[0][0] >= 60:
            _, name = calls.popleft()
            counts[name] -= 1
            if not counts[name]:
                del counts[name]
        if counts[tool] >= limit:
            oldest = next((at for at, name in calls if name == tool), now)
            wait_s = ceil(60 - (now - oldest))
            why = f"more than {limit} calls in a minute; try again in {wait_s} s"
            raise McpError(f"{tool}: {why}", TOO_MANY_CALLS, {"retryAfterS": wait_s})
        calls.append((now, tool))
        counts[tool] += 1

    def on_call(call: ToolRequest, next: NextCall) -> Answer:
        for pattern, limit in per_minute.items():
            if fnmatchcase(call.name, pattern):
                check(call.name, limit)
                break
        return next(call)

    return on_call


on_call = limited(PER_MINUTE)
