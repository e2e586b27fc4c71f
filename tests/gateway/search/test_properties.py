"""What holds for any tools and any query."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from portico.search import ToolIndex

WORDS = st.sampled_from(["send", "mail", "getUser", "issue", "weather", "file_read", "图片", "a b"])
TEXT = st.one_of(WORDS, st.text(max_size=30), st.lists(WORDS, max_size=8).map(", and ".join))
NAME = st.one_of(WORDS, st.text(min_size=1, max_size=20).filter(lambda name: name == name.strip()))
TOOL = st.fixed_dictionaries({"server": TEXT, "name": NAME, "description": TEXT})
TOOLS = st.lists(TOOL, min_size=1, max_size=8)


@given(TOOLS, TEXT, st.integers(-1, 12))
def test_hits_are_sorted_unique_and_no_more_than_asked(
    tools: list[dict[str, Any]], query: str, limit: int
) -> None:
    hits = ToolIndex.build(tools).search(query, limit)
    assert len(hits) <= max(limit, 0)
    assert len({(hit.server, hit.name) for hit in hits}) == len(hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@given(TOOLS, st.data())
def test_the_exact_name_comes_first_whatever_stands_beside_it(
    tools: list[dict[str, Any]], data: st.DataObject
) -> None:
    wanted = data.draw(st.sampled_from(tools))["name"]
    stranger = data.draw(TOOL)
    assert ToolIndex.build(tools).search(wanted, 1)[0].name == wanted
    assert ToolIndex.build([stranger, *tools]).search(wanted, 1)[0].name == wanted


@given(TOOLS, TEXT)
def test_an_index_is_the_same_after_the_disk(tools: list[dict[str, Any]], query: str) -> None:
    index = ToolIndex.build(tools)
    restored = ToolIndex.from_bytes(index.to_bytes())
    assert restored is not None
    assert restored.search(query) == index.search(query)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_index_or_none(data: bytes) -> None:
    index = ToolIndex.from_bytes(data)
    assert index is None or isinstance(index, ToolIndex)
