"""An offer that was fetched again: where nothing really changed, it stays byte for byte."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog.catalog import Catalog
from portico.core.catalog.settled import in_order_of_keys, settled
from portico.core.model.offer import KEYS, KINDS, Listed, Offer
from portico.core.model.version import Version

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "é", "x\n", "\u2028", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=8,
)
_ENTRIES = st.dictionaries(
    st.text("abcXYZ_/:é", min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["title", "_meta", "inputSchema", "x"]), _VALUES, max_size=3),
    max_size=6,
)
_LISTS = st.dictionaries(st.sampled_from(KINDS), _ENTRIES)


def written(value: Any, random: Random) -> str:
    """A value in other bytes: other spaces, escapes, and keys in another order."""
    if isinstance(value, dict):
        pairs = random.sample(list(value.items()), len(value))
        inner = ",".join(f"{written(key, random)} : {written(of, random)}" for key, of in pairs)
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(written(one, random) for one in value)}]"
    return json.dumps(value, ensure_ascii=random.random() < 0.5)


def offer(
    lists: dict[str, dict[str, dict[str, Any]]], random: Random | None = None, page: int = 0
) -> Offer:
    """An offer of these entries, in their order or a random one."""
    found = {}
    for kind, entries in lists.items():
        names = list(entries) if random is None else random.sample(list(entries), len(entries))
        items = [{KEYS[kind]: name, **entries[name]} for name in names]
        texts = [json.dumps(one) if random is None else written(one, random) for one in items]
        raw = tuple(text.encode() for text in texts)
        found[kind] = Listed(items=raw, keys=tuple(names), page_size=page)
    hello = {"serverInfo": {"name": "x", "version": "1"}, "capabilities": {"tools": {}}}
    text = json.dumps(hello) if random is None else written(hello, random)
    return Offer(Version.V2025_11_25, text.encode(), found, taken=1.0)


@given(_LISTS, st.randoms(use_true_random=False), st.integers(0, 9))
def test_another_order_of_entries_keys_and_pages_changes_nothing(
    lists: dict[str, Any], random: Random, page: int
) -> None:
    before = offer(lists)
    again = settled(offer(lists, random, page), before)
    assert again.same(before)
    assert again.lists == before.lists
    assert Catalog(again).changed(Catalog(before)) == []


@given(_LISTS, st.lists(st.randoms(use_true_random=False), max_size=5))
def test_however_often_it_is_listed_it_stays(lists: dict[str, Any], randoms: list[Random]) -> None:
    first = now = offer(lists)
    for random in randoms:
        now = settled(offer(lists, random), now)
    assert now.lists == first.lists


@given(_ENTRIES, _ENTRIES, st.randoms(use_true_random=False))
def test_a_real_change_is_taken_and_what_stays_keeps_its_order_and_bytes(
    before: dict[str, Any], after: dict[str, Any], random: Random
) -> None:
    old = offer({"tools": before})
    new = offer({"tools": after}, random)
    found = settled(new, old).listed("tools")
    assert {key: json.loads(raw) for key, raw in zip(found.keys, found.items, strict=True)} == {
        key: {"name": key, **of} for key, of in after.items()
    }
    known = dict(zip(old.listed("tools").keys, old.listed("tools").items, strict=True))
    stays = [key for key in before if key in after]
    order = [key for key in found.keys if key in before]
    in_its_order = [key for key in new.listed("tools").keys if key in before]
    assert order in (stays, in_its_order)
    for key, raw in zip(found.keys, found.items, strict=True):
        if json.dumps(before.get(key), sort_keys=True) == json.dumps(after[key], sort_keys=True):
            assert raw == known[key]
    is_same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert settled(new, old).same(old) == is_same


def tools(*names: str, **more: str) -> Offer:
    return Offer.of(tools=[{"name": name, "title": more.get(name, "")} for name in names])


def test_a_new_entry_takes_the_place_that_the_server_gives_it() -> None:
    assert settled(tools("a", "x", "b", "c"), tools("a", "b", "c")).listed("tools").keys == (
        *("a", "x", "b"),
        "c",
    )


def test_a_new_entry_comes_last_if_the_server_shuffles() -> None:
    assert settled(tools("c", "x", "a"), tools("a", "b", "c")).listed("tools").keys == (
        *("a", "c"),
        "x",
    )


def test_a_changed_entry_stays_in_its_place() -> None:
    found = settled(tools("c", "b", "a", b="new"), tools("a", "b", "c")).listed("tools")
    assert found.keys == ("a", "b", "c")
    assert b'"new"' in found.items[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1", "1.0"),
        ("1", "true"),
        ("0", "-0"),
        ("[1,2]", "[2,1]"),
        ('{"a":1}', '{"a":1,"a":1}'),
        ("null", '"null"'),
        ("{}", "null"),
        ("1e400", "1e401"),
    ],
)
def test_what_could_mean_something_else_is_a_change(before: str, after: str) -> None:
    old, new = (
        Offer(lists={"tools": Listed((f'{{"name":"a","x":{text}}}'.encode(),), ("a",))})
        for text in (before, after)
    )
    assert settled(new, old) == new


def test_bytes_come_from_the_first_that_knows_them() -> None:
    own = Offer(lists={"tools": Listed((b'{"name":"a" }',), ("a",))})
    other = Offer(lists={"tools": Listed((b'{"name":"b" }', b'{ "name":"a"}'), ("b", "a"))})
    now = Offer(lists={"tools": Listed((b'{"name":"b"}', b'{"name":"a"}'), ("b", "a"))})
    found = settled(now, own, other).listed("tools")
    assert dict(zip(found.keys, found.items, strict=True)) == {
        "a": b'{"name":"a" }',
        "b": b'{"name":"b" }',
    }


def test_fields_beside_a_list_are_taken_and_not_announced() -> None:
    before = Offer(lists={"tools": Listed((), (), more=b'{"ttlMs":1,"_meta":{}}')})
    same = Offer(lists={"tools": Listed((), (), more=b'{"_meta": {}, "ttlMs": 1}')})
    other = Offer(lists={"tools": Listed((), (), more=b'{"ttlMs":2}')})
    assert settled(same, before) == before
    assert settled(other, before) == other
    assert Catalog(other).changed(Catalog(before)) == []


def test_a_list_that_was_never_known_stays_as_it_is() -> None:
    now = tools("b", "a")
    assert settled(now) == now
    assert settled(now, Offer()) == now


@given(_LISTS, st.randoms(use_true_random=False))
def test_in_the_order_of_keys_the_order_of_the_server_does_not_matter(
    lists: dict[str, Any], random: Random
) -> None:
    first = in_order_of_keys(offer(lists))
    for kind, entries in lists.items():
        assert list(first.listed(kind).keys) == sorted(entries)
    assert settled(in_order_of_keys(offer(lists, random)), first).lists == first.lists
