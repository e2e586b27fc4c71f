"""Vectors are made in the background, once for each definition."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from portico.gateway.search.embedding_model import NoModel
from portico.gateway.search.vectors import Vectors, views_of
from portico.search import ToolIndex
from tests.gateway.search.tools import TOOLS, Letters, tool


def made(model: Letters, folder: Path | None, tools: list[dict[str, Any]]) -> Vectors:
    vectors = Vectors(folder=str(folder) if folder else None, report=print, model=lambda: model)
    vectors.use(ToolIndex.build(tools), lambda: tools)
    vectors.wait()
    return vectors


def test_meaning_finds_what_words_do_not() -> None:
    space = made(Letters(), None, TOOLS).space
    assert space is not None
    assert space.index.search("wthr nxt frcst dys") == []
    assert space.search("wthr nxt frcst dys", 1)[0].name == "forecast"


def test_the_exact_name_comes_first_whatever_vectors_say() -> None:
    space = made(Letters(), None, [*TOOLS, tool("x", "mailed_sender", "send email")]).space
    assert space is not None
    assert space.search("send_email", 1)[0].name == "send_email"
    assert space.search("gitlab__createIssue", 1)[0].server == "gitlab"


def test_a_search_stays_within_its_servers() -> None:
    space = made(Letters(), None, TOOLS).space
    assert space is not None
    assert {hit.server for hit in space.search("issue", 9, server="gitlab")} == {"gitlab"}
    assert {hit.server for hit in space.search("issue", 9, servers={"mail", "papers"})} == {
        "mail",
        "papers",
    }


def test_a_definition_is_embedded_once(tmp_path: Path) -> None:
    model = Letters()
    made(model, tmp_path, TOOLS)
    known = len(model.texts)
    changed = [*TOOLS[1:], tool("mail", "send_email", "Send a letter.", carbonCopy="Who too")]
    assert made(model, tmp_path, changed).space is not None
    assert model.texts[known:] == [
        "mail: send email: Send a letter.",
        "mail: send email: Send a letter. Parameters: carbon copy",
    ]


def test_kept_vectors_rank_as_fresh_ones(tmp_path: Path) -> None:
    fresh, kept = (made(Letters(), tmp_path, TOOLS).space for _ in range(2))
    assert fresh is not None
    assert kept is not None
    assert fresh.search("open something") == kept.search("open something")


def test_a_new_catalog_ends_the_work_for_the_old_one(tmp_path: Path) -> None:
    entered, go = threading.Event(), threading.Event()

    class Slow(Letters):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            entered.set()
            assert go.wait(30)
            return super().embed(texts)

    model = Slow()
    many = [tool("s", f"tool_{number}", "x" * number) for number in range(100)]
    vectors = Vectors(folder=str(tmp_path), report=print, model=lambda: model)
    vectors.use(ToolIndex.build(many), lambda: many)
    assert entered.wait(30)
    index = ToolIndex.build(TOOLS)
    vectors.use(index, lambda: TOOLS)
    go.set()
    vectors.wait()
    assert vectors.space is not None
    assert vectors.space.index is index
    assert len(model.texts) < 100


def test_closing_stops_the_work_and_keeps_what_was_made(tmp_path: Path) -> None:
    model = Letters()
    vectors = Vectors(folder=str(tmp_path), report=print, model=lambda: model)
    vectors.close()
    vectors.use(ToolIndex.build(TOOLS), lambda: TOOLS)
    vectors.wait()
    assert vectors.space is None
    assert model.texts == []


def test_without_a_model_it_says_so_once() -> None:
    def missing() -> Letters:
        raise NoModel("vectors need x: install it")

    said: list[str] = []
    vectors = Vectors(report=said.append, model=missing)
    for _ in range(2):
        vectors.use(ToolIndex.build(TOOLS), lambda: TOOLS)
        vectors.wait()
    assert said == ["search continues without vectors: vectors need x: install it"]
    assert vectors.space is None


def test_an_empty_catalog_and_broken_definitions_do_no_harm() -> None:
    assert made(Letters(), None, []).space is None
    broken: list[dict[str, Any]] = [{}, {"name": 7}, {"name": "x", "description": None}]
    assert made(Letters(), None, broken).space is not None


def test_of_twins_the_first_is_embedded() -> None:
    twins = [tool("a", "x", "whales"), tool("a", "x", "ships")]
    assert views_of(ToolIndex.build(twins), twins) == [("x: whales",)]


def test_the_name_of_a_server_counts_where_there_are_several() -> None:
    two = [tool("a", "x", "whales"), tool("gitHub", "y", "ships")]
    assert views_of(ToolIndex.build(two), two) == [("a: x: whales",), ("git hub: y: ships",)]


@pytest.mark.parametrize("query", ["", " ", "\0", "🦄" * 5_000, "a, " * 3_000])
def test_any_query_is_answered(query: str) -> None:
    space = made(Letters(), None, TOOLS).space
    assert space is not None
    assert len(space.search(query, 3)) <= 3
