"""Real clients in front of `portico serve` with 60 tools, each with a scripted model on loopback.

Qwen Code and Gemini CLI in `make test`, and those of `make clients` too in `make soak`.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portico.core.config.client_exposure import known_client
from tests.fit.real_clients import REAL_CLIENTS
from tests.fit.recording import TOOLS, conversed, stored
from tests.fit.test_recordings import SEARCHING
from tests.support.model_dialects import Step
from tests.support.model_server import calls, says
from tests.support.soak import IS_SOAK
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("real-clients")]

CLIENTS = list(REAL_CLIENTS) if IS_SOAK else ["qwen", "gemini"]
PROMPT = "borrow SEVEN"


def steps(client: str) -> list[Step]:
    """The calls by which the model of a client gets the book."""
    prefix = REAL_CLIENTS[client].prefix
    if client in SEARCHING:
        return [calls(f"{prefix}execute_tool", name="mine__book-7", arguments={}), says("Done.")]
    if client == "codex":  # it writes names with underscores only, and lists none of them
        return [calls("tool_search", query="book-7"), calls(f"{prefix}mine__book_7"), says("Done.")]
    return [calls(f"{prefix}mine__book-7"), says("Done.")]


def defined(requests: list[dict[str, Any]]) -> list[str]:
    """The names of Portico's tools whose definitions the model reads at the start."""
    first = next(request for request in requests if request.get("tools"))
    found: list[str] = []
    for tool in first["tools"]:
        nested = tool.get("functionDeclarations") or tool.get("tools") or [tool]
        loaded = [one for one in nested if not one.get("defer_loading")]
        found += [one.get("function", one).get("name", "") for one in loaded]
    return [name for name in found if "portico" in name or name.startswith("mine__")]


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_real_client_is_shown_what_fits_it_and_calls_a_tool(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    fresh, model, said = await conversed(name, tmp_path, {"SEVEN": steps(name)}, PROMPT)
    assert "Done." in said, said
    # The recordings are of the versions that are installed: record anew after an update.
    kept = stored(name)
    assert fresh.naming == kept.naming
    assert fresh.environment == kept.environment
    searches = name in SEARCHING
    assert ("search_tools" in fresh.shown) == searches
    assert len(fresh.shown) == (6 if searches else TOOLS)
    results = [text for text in map(json.dumps, model.requests) if "book-7" in text]
    assert results, said
    log = tmp_path / "portico" / "state" / "logs" / "serve.log"

    def is_logged() -> bool:
        return log.exists() and '"tool":"book-7"' in log.read_text()

    assert await asyncio.to_thread(until, is_logged), said
    read = defined(model.requests)
    client = known_client(name)
    assert client is not None
    # A client that defers has its model read none of the definitions; another, only a few.
    assert len(read) == (0 if client.defers("") else 6)
    record_property("soak", f"{name} was shown {len(fresh.shown)} tools, and its model {len(read)}")
