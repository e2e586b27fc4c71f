"""Catalogs: merged in order, encoded once, paged with cursors that survive changes."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog import cursor
from portico.core.catalog.catalog import Catalog, Identity, without_output_schema
from portico.core.catalog.merge import merge
from portico.core.model.offer import Offer
from portico.core.model.version import Version

NAMES = st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=12)


def tools(*names: str) -> Offer:
    return Offer.of(tools=[{"name": name} for name in names])


def catalog(offer: Offer, page_size: int = 0) -> Catalog:
    return Catalog(offer, Identity(name="t", version="1", page_size=page_size))


def page(made: Catalog, at: str = "", version: Version = Version.V2026_07_28) -> dict[str, Any]:
    body = made.page("tools", version, at)
    assert body is not None
    decoded: dict[str, Any] = json.loads(body)
    return decoded


def walk(made: Catalog) -> list[str]:
    names: list[str] = []
    at = ""
    while True:
        shown = page(made, at)
        names += [tool["name"] for tool in shown["tools"]]
        at = shown.get("nextCursor", "")
        if not at:
            return names


@given(names=NAMES, size=st.integers(0, 5))
def test_pages_show_every_item_once_and_in_order(names: list[str], size: int) -> None:
    assert walk(catalog(tools(*names), size)) == names


@given(lists=st.lists(NAMES, max_size=4), size=st.integers(0, 4))
def test_merged_lists_keep_their_order_and_the_first_owner_wins(
    lists: list[list[str]], size: int
) -> None:
    offers = [(f"p{number}", tools(*names)) for number, names in enumerate(lists)]
    merged, clashes = merge(offers)
    everything = [name for names in lists for name in names]
    assert walk(catalog(merged, size)) == list(dict.fromkeys(everything))
    assert len(clashes) == len(everything) - len(set(everything))


@given(names=NAMES.filter(lambda n: len(n) > 2), gone=st.data())
def test_a_cursor_survives_a_change_of_the_catalog(names: list[str], gone: st.DataObject) -> None:
    first = page(catalog(tools(*names), 2))
    removed = gone.draw(st.sampled_from(names))
    left = [name for name in names if name != removed]
    rest = [tool["name"] for tool in page(catalog(tools(*left)), first["nextCursor"])["tools"]]
    assert rest == [name for name in names[2:] if name != removed]


@given(st.text(max_size=60))
def test_no_text_of_somebody_elses_is_a_cursor(text: str) -> None:
    made = catalog(tools("a", "b"), 1)
    if text and text != page(made)["nextCursor"]:
        body = made.page("tools", Version.V2026_07_28, text)
        assert body is None


def test_a_cursor_of_another_list_is_unknown() -> None:
    made = catalog(tools("a", "b"), 1)
    assert made.page("prompts", Version.V2026_07_28, page(made)["nextCursor"]) is None
    assert made.page("tools", Version.V2026_07_28, cursor.write("prompts", 1, "a")) is None


def test_every_page_is_serialised_once() -> None:
    made = catalog(tools("a", "b", "c"), 2)
    at = page(made)["nextCursor"]
    for version in Version:
        assert made.page("tools", version, "") is made.page("tools", version, "")
        assert made.page("tools", version, at) is made.page("tools", version, at)
    assert made.handshake(Version.V2025_06_18) is made.handshake(Version.V2025_06_18)
    assert made.discovery(Version.V2026_07_28) is made.discovery(Version.V2026_07_28)


def test_only_modern_lists_carry_caching_hints_and_a_result_type() -> None:
    made = catalog(tools("a"))
    modern, legacy = page(made), page(made, version=Version.V2025_11_25)
    assert modern["resultType"] == "complete"
    assert (modern["ttlMs"], modern["cacheScope"]) == (0, "private")
    assert set(legacy) == {"tools"}


def test_made_up_cursors_do_not_fill_the_memory() -> None:
    made = catalog(tools(*"abcdef"), 2)
    for number in range(1, 200):
        made.page("tools", Version.V2026_07_28, cursor.write("tools", number, f"gone{number}"))
    assert len(made.pages) == 0


def test_an_output_schema_is_removed_however_its_key_is_written() -> None:
    spelled = (
        rb'"outputSchema"',
        rb'"output\u0053chema"',
        rb'"outputSchema":{"a":1},"outputSchema"',
    )
    for key in spelled:
        raw = b'{"name":"x",' + key + b':{"type":"object"},"inputSchema":{"type":"object"}}'
        kept = {"name": "x", "inputSchema": {"type": "object"}}
        assert json.loads(without_output_schema(raw)) == kept
    for raw in (b'{"name":"x"}', b'{"name": "x\\n"}', b'{"name":"outputSchema"}'):
        assert without_output_schema(raw) is raw
