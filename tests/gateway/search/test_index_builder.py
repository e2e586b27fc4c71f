"""Large catalogs are indexed in a process of their own, with the same result."""

from typing import Any

import pytest

from portico.gateway.search.index_builder import MAX_INLINE, build
from portico.search import ToolIndex
from tests.gateway.search.tools import tool

MANY = [
    tool(f"s{n % 7}", f"tool_{n}", f"Does thing {n}.", way=f"How {n}")
    for n in range(MAX_INLINE + 5)
]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tools were indexed in this process, each time."""
    counts: list[int] = []
    real = ToolIndex.build

    def counted(tools: Any) -> ToolIndex:
        index = real(tools)
        counts.append(len(index))
        return index

    monkeypatch.setattr(ToolIndex, "build", counted)
    return counts


def test_an_index_is_the_same_wherever_it_is_built(here: list[int]) -> None:
    elsewhere = build(lambda: iter(MANY)).to_bytes()
    assert here == []
    assert elsewhere == ToolIndex.build(MANY).to_bytes()


def test_a_small_one_is_built_here(here: list[int]) -> None:
    assert len(build(lambda: iter(MANY[:MAX_INLINE]))) == MAX_INLINE
    assert here == [MAX_INLINE]


@pytest.mark.parametrize("odd", ["\ud800", object()])
def test_what_cannot_be_sent_is_built_here(here: list[int], odd: object) -> None:
    tools = [*MANY, {"server": "s", "name": "odd", "description": odd}]
    assert len(build(lambda: tools)) == len(tools)
    assert here == [len(tools)]


def test_without_a_process_it_is_built_here(
    here: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert len(build(lambda: MANY)) == len(MANY)
    assert here == [len(MANY)]


def test_tools_that_raise_are_the_callers_to_hear_of() -> None:
    def broken() -> Any:
        yield from MANY
        raise LookupError("half a catalog")

    with pytest.raises(LookupError, match="half a catalog"):
        build(broken)
