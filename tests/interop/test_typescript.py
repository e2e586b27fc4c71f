"""The official TypeScript client uses everything once, in both eras and over every transport."""

import json
from typing import Any

import pytest

from tests.interop.doors import Doors
from tests.support.node import run_node, ts

pytestmark = pytest.mark.slow

# Each version over HTTP, where versions differ most, and each other transport in its newest form.
WAYS = [
    *(("http", v) for v in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")),
    *(("stdio", v) for v in ("2025-11-25", "2026-07-28")),
    ("sse", "2024-11-05"),
    *(("websocket", v) for v in ("2025-11-25", "2026-07-28")),
]


@pytest.mark.parametrize(("transport", "version"), WAYS, ids=map("-".join, WAYS))
def test_the_typescript_client_can_use_everything(
    features: Doors, transport: str, version: str
) -> None:
    seen = _what_it_saw(features, transport, version)
    assert seen.pop("version") == version
    assert seen.pop("server") == "features"
    assert seen.pop("instructions") == "Use everything once."
    assert len(seen.pop("tools")) >= 20
    assert seen.pop("resources") == ["note://one", "note://two", "note://three"]
    assert len(seen.pop("templates")) == 3
    assert seen.pop("prompts") == ["greet", "show", "interview"]
    structured = {"city": "Oslo", "degrees": 21.5}
    assert seen == {
        "content": {
            "text": "text",
            "picture": "image",
            "sound": "audio" if version >= "2025-03-26" else "text",
            "embedded": "resource",
            "pointer": "resource_link" if version >= "2025-06-18" else "text",
        },
        # Before 2025-06-18 structured content is not in the protocol; sending it is harmless.
        "structured": structured if version >= "2025-06-18" else seen["structured"],
        "failed": "error: fail failed: RuntimeError: it broke",
        "unknownTool": -32602,
        "note": "the first note",
        "day": "1 may",
        "unknownResource": -32602,  # the client's own class for it, whichever code came
        "greeting": "Write a kind greeting for Ada.",
        "tones": ["kind", "keen"],
        "logged": "error",
        "named": "accept: Ada" if version >= "2025-06-18" else seen["named"],
        "model": "tiny: 42",
        "roots": "file:///work",
        "hanging": "aborted",
        "cancelled": "it was",
        "changed": True,
        "updated": "note://one",
    }
    if version < "2025-06-18":
        assert seen["named"].startswith("error: ")


def _what_it_saw(features: Doors, transport: str, version: str) -> dict[str, Any]:
    target: dict[str, Any] = {"version": version}
    if transport == "stdio":
        target["command"] = features.command()
    elif transport == "websocket":
        target["url"] = features.socket_url()
    else:
        target["url"] = features.url("/sse" if transport == "sse" else "/mcp")
    done = run_node(ts("client.mjs"), json.dumps(target))
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
