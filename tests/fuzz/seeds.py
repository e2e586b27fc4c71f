"""Valid messages of both eras to start from, and values that have broken parsers."""

import json
from collections.abc import Sequence
from typing import Any

from tests.support.running import initialize_params, modern_meta
from tests.support.shared import shared

_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ping", {}),
    ("tools/list", {}),
    ("tools/list", {"cursor": "WyJ0b29scyIsMiwicGljdHVyZSJd"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("prompts/list", {}),
    ("tools/call", {"name": "echo", "arguments": {"value": [1, "two", None, {"three": 3.5}]}}),
    ("tools/call", {"name": "text"}),
    ("tools/call", {"name": "weather", "arguments": {"city": "Oslo"}}),
    ("tools/call", {"name": "primes", "arguments": {"count": 3}}),
    ("tools/call", {"name": "steps", "_meta": {"progressToken": "p"}}),
    ("tools/call", {"name": "chatter"}),
    ("tools/call", {"name": "ask_name", "inputResponses": {}, "requestState": "AAAA"}),
    ("resources/read", {"uri": "note://one"}),
    ("resources/read", {"uri": "day://may/1"}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "tone", "value": "k"},
            "context": {"arguments": {"name": "Ada"}},
        },
    ),
    ("resources/subscribe", {"uri": "note://one"}),
    ("resources/unsubscribe", {"uri": "note://one"}),
    ("logging/setLevel", {"level": "info"}),
    ("server/discover", {}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    ("initialize", initialize_params("2025-11-25")),
]
_NOTICES: list[tuple[str, dict[str, Any]]] = [
    ("notifications/initialized", {}),
    ("notifications/cancelled", {"requestId": 1, "reason": "fuzz"}),
    ("notifications/progress", {"progressToken": 1, "progress": 0.5}),
    ("notifications/roots/list_changed", {}),
]

AWKWARD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 2**31, 2**63, -(2**63), 2**64, 10**400),
    *(1e308, 5e-324, "", " ", "\x00", "\u202e", "\ufeff", "é" * 50, "\U0001f4a9", "\ud800"),
    *("a" * 5000, "../../etc/passwd", "note://one", "2026-07-28", "2025-11-25", "=?base64?x?="),
    *([], [[]], {}, {"": ""}, {"_meta": {}}, [None] * 100),
]
FRAGMENTS = [
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u", b"\\ud800", b"\n", b"\r\n"),
    *(b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"NaN", b"-Infinity"),
    *(b"1e999", b"-", b"0x1", b"1.", b"// c\n", b"null", b'"id":1,', b'"method":"ping",'),
    *(b"[" * 200, b'{"a":' * 200, b"9" * 5000, b'"jsonrpc":"2.0",'),
]


def messages() -> list[Any]:
    """Valid messages of both eras, as objects to be mutated."""
    made: list[Any] = []
    for id, (method, params) in enumerate(_CALLS):
        modern = {**params, "_meta": {**modern_meta(), **params.get("_meta", {})}}
        request = {"jsonrpc": "2.0", "id": id, "method": method}
        made += [{**request, "params": params}, {**request, "params": modern}, request]
    for method, params in _NOTICES:
        made.append({"jsonrpc": "2.0", "method": method, "params": params})
    made.append({"jsonrpc": "2.0", "id": "portico-1", "result": {"action": "accept"}})
    made.append({"jsonrpc": "2.0", "id": "portico-1", "error": {"code": -1, "message": "no"}})
    made.append(made[:3])
    return made


def bodies(valid: Sequence[Any]) -> list[bytes]:
    """Messages as bytes, and the corpora."""
    files = sorted(shared("corpora/json-parsing").glob("*.json"))
    return [
        *(json.dumps(message).encode() for message in valid),
        *(body for file in files if len(body := file.read_bytes()) < 10_000),
    ]
