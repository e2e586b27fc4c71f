"""The oracle that holds every message against the wire schemas does see what is wrong."""

import json
from typing import Any

import pytest

from tests.support.oracle import MODERN, WireOracle
from tests.support.running import initialize_params, modern_meta


def told(*conversation: tuple[str, Any], header: str | None = None) -> WireOracle:
    """An oracle that has checked a conversation: `>` to the server, `<` from it."""
    oracle = WireOracle(header)
    for way, message in conversation:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        (oracle.client_sent if way == ">" else oracle.server_sent)(body)
    return oracle


def opened(version: str) -> list[tuple[str, Any]]:
    """A handshake at a version."""
    result = {
        "protocolVersion": version,
        "capabilities": {},
        "serverInfo": {"name": "x", "version": "1"},
    }
    asked = {"id": 0, "method": "initialize", "params": initialize_params(version)}
    return [(">", asked), ("<", {"id": 0, "result": result})]


ASK = (">", {"id": 1, "method": "tools/list"})
ASK_MODERN = (">", {"id": 1, "method": "tools/list", "params": {"_meta": modern_meta()}})
COMPLETE = {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


def test_a_proper_conversation_has_no_problems() -> None:
    legacy = told(*opened("2025-06-18"), ASK, ("<", {"id": 1, "result": {"tools": []}}))
    modern = told(ASK_MODERN, ("<", {"id": 1, "result": COMPLETE}))
    assert (legacy.checked, legacy.problems) == (2, [])
    assert (modern.checked, modern.problems) == (1, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 1, "result": {}},
        {"id": 1, "result": {"tools": [{"name": 7}]}},
        {"id": 2, "result": {"tools": []}},
        {"id": 1, "error": {"code": "x", "message": "no code"}},
        {"id": None, "error": {"code": -32700, "message": "null is of older versions"}},
        {"method": "notifications/progress", "params": {"progress": 1}},
        {"id": 5, "method": "no/such/question"},
    ],
)
def test_what_the_version_does_not_allow_is_a_problem(wrong: dict[str, Any]) -> None:
    assert told(*opened("2025-11-25"), ASK, ("<", wrong)).problems


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 1, "result": {"tools": []}},
        {"id": 1, "result": {**COMPLETE, "ttlMs": "long"}},
        {"id": "q", "method": "roots/list"},
        {"id": 1, "error": {"code": -32022, "message": "which ones, then?"}},
    ],
)
def test_so_it_is_in_the_modern_era(wrong: dict[str, Any]) -> None:
    assert told(ASK_MODERN, ("<", wrong)).problems


def test_no_id_is_null_up_to_2025_06_18_and_absent_from_then_on() -> None:
    error = {"error": {"code": -32700, "message": "broken"}}
    for version, null in (("2024-11-05", True), ("2025-06-18", True), ("2025-11-25", False)):
        with_null = told(*opened(version), ("<", {"id": None, **error}))
        without = told(*opened(version), ("<", error))
        assert (with_null.problems == []) == null
        assert (without.problems == []) != null
    assert told(("<", error), header=MODERN).problems == []


def test_a_batch_is_of_2025_03_26_only() -> None:
    for version in ("2024-11-05", "2025-03-26", "2025-06-18"):
        oracle = told(*opened(version), (">", {"id": 1, "method": "ping"}))
        oracle.server_sent(b'[{"jsonrpc":"2.0","id":1,"result":{}}]')
        assert (oracle.problems == []) == (version == "2025-03-26")


def test_what_is_no_json_is_a_problem() -> None:
    oracle = WireOracle()
    oracle.server_sent(b"Traceback (most recent call last):")
    assert len(oracle.problems) == 1
