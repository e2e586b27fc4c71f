"""Hints in definitions that clients with a tool search of their own read."""

import json
from typing import Any

import pytest

from portico.core.catalog.merge import Merged
from portico.core.catalog.namespaced import NamespacedOffer
from portico.core.model.offer import Listed, Offer
from portico.gateway.endpoints.instructions import MAX_BYTES, merged_instructions
from portico.gateway.endpoints.tool_hints import hinted, search_hint, with_hints
from portico.gateway.search.synonyms import related


def tool(name: str, **more: Any) -> bytes:
    return json.dumps({"name": name, "inputSchema": {"type": "object"}, **more}).encode()


def meta(raw: bytes) -> Any:
    return json.loads(raw).get("_meta")


def test_a_hint_has_the_words_of_the_search_that_the_tool_itself_lacks() -> None:
    hint = search_hint("create_issue", ("tracker",)).split()
    assert hint[0] == "tracker"
    assert {"make", "bug", "ticket"} <= {*hint}
    assert not {"create", "issue"} & {*hint}
    assert search_hint("frobnicate", ()) == ""


def test_a_hint_is_short_and_on_one_line() -> None:
    hint = search_hint("create_update_delete_list_find_issue", ("a\nb  c", "x" * 500, " "))
    assert "\n" not in hint
    assert hint.startswith("a b c ")
    assert len(hint) < 250


def test_related_words_are_written_out_not_stemmed() -> None:
    assert "generate" in related(["creat"])
    assert related([]) == related(["frobnicat"]) == []


def test_the_hints_of_a_server_are_never_changed() -> None:
    own = {"anthropic/searchHint": "mine", "anthropic/alwaysLoad": False, "x": [1, 2.50]}
    raw = tool("add", _meta=own)
    assert with_hints(raw, "ours", always_loads=True) == raw
    assert meta(with_hints(tool("add", _meta={"x": 1}), "ours", always_loads=True)) == {
        "x": 1,
        "anthropic/searchHint": "ours",
        "anthropic/alwaysLoad": True,
    }
    assert with_hints(tool("add"), "", always_loads=False) == tool("add")


@pytest.mark.parametrize("odd", ["text", 7, None, [], True])
def test_a_meta_that_is_not_an_object_stays_as_it_is(odd: Any) -> None:
    raw = tool("add", _meta=odd)
    assert with_hints(raw, "ours", always_loads=True) == raw


@pytest.mark.parametrize("odd", [b"[]", b"7", b"{}", b""])
def test_a_definition_that_is_not_one_stays_as_it_is(odd: bytes) -> None:
    assert with_hints(odd, "ours", always_loads=True) == odd


def test_only_pinned_tools_ask_to_be_loaded_and_tags_belong_to_their_server() -> None:
    offers = [
        NamespacedOffer(name, Offer(lists={"tools": Listed(items=(tool("go"),), keys=("go",))}), 64)
        for name in ("one", "two")
    ]
    merged = Merged(offers)
    made = hinted(merged.listed("tools"), merged, ("two__go",), lambda name: (f"tag-{name}",))
    assert [meta(raw) for raw in made.items] == [
        {"anthropic/searchHint": "tag-one"},
        {"anthropic/searchHint": "tag-two", "anthropic/alwaysLoad": True},
    ]


@pytest.mark.parametrize("searches", [True, False])
@pytest.mark.parametrize("about", ["plain", "日本語の説明", "🦊"])
def test_instructions_name_the_servers_first_and_stay_within_two_kilobytes(
    searches: bool, about: str
) -> None:
    summary = ", ".join(f"server{number} (3: {about * 9})" for number in range(200))
    words = merged_instructions(summary, searches=searches)
    assert words.startswith("Portico connects these MCP servers: server0 (3: ")
    assert len(words.encode()) <= MAX_BYTES
    assert " and more. " in words
    assert ("search_tools" in words) == searches
    assert merged_instructions("a (1)", searches=searches).count("a (1). ") == 1
