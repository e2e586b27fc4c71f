"""A gateway's search: one catalog after another, kept on disk, with what makes it better."""

import asyncio
import gc
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from portico.core.config.schema import Rerank, Search
from portico.core.model.errors import PorticoError
from portico.gateway.search.index import ToolIndex
from portico.gateway.search.rerank import Reranker
from portico.gateway.search.searcher import CACHED, Searcher
from portico.gateway.search.vectors import Vectors
from tests.gateway.search.endpoint import endpoint
from tests.gateway.search.tools import TOOLS, Letters, tool
from tests.support.backoff import until

WAIT_S = 60.0


class Source:
    """Tools, and how often they were asked for; it waits for `go`."""

    def __init__(self, tools: list[dict[str, Any]], ready: bool = True) -> None:
        self.tools = tools
        self.asked = 0
        self.entered = threading.Event()
        self.go = threading.Event()
        if ready:
            self.go.set()

    def __call__(self) -> Iterable[Mapping[str, Any]]:
        self.asked += 1
        self.entered.set()
        assert self.go.wait(WAIT_S)
        return self.tools


async def names(searcher: Searcher, query: str, limit: int = 5, **only: Any) -> list[str]:
    async with asyncio.timeout(WAIT_S):
        return [hit.name for hit in await searcher.search(query, limit, **only)]


def stored(folder: Path) -> list[Path]:
    return [*folder.glob("*.index")]


async def settled(searcher: Searcher, count: int) -> None:
    """Until an index of so many tools answers."""
    await until(lambda: searcher.status()["tools"] == count)


def indexes() -> int:
    """How many there are in memory."""
    gc.collect()
    return sum(isinstance(one, ToolIndex) for one in gc.get_objects())


async def test_of_several_catalogs_only_the_last_is_in_memory() -> None:
    before, searcher = indexes(), Searcher()
    for count in (3, 4, 5):
        searcher.use(str(count), Source(TOOLS[:count]))
        await settled(searcher, count)
        await names(searcher, "weather")

    await until(lambda: indexes() == before + 1)  # the thread may still be ending


async def test_the_first_search_waits_for_the_index() -> None:
    searcher, source = Searcher(), Source(TOOLS, ready=False)
    searcher.use("1", source)
    asked = asyncio.create_task(names(searcher, "weather", 1))
    await asyncio.sleep(0)
    assert not asked.done()
    source.go.set()
    assert await asked == ["forecast"]


async def test_until_all_tools_are_indexed_the_first_few_are_searched() -> None:
    searcher, all_of_them = Searcher(max_wait_s=0.0), Source(TOOLS, ready=False)
    searcher.use("1", all_of_them, lambda: [tool("a", "weather_map")])
    assert await names(searcher, "weather") == ["weather_map"]
    assert searcher.is_behind
    all_of_them.go.set()
    await settled(searcher, len(TOOLS))
    assert await names(searcher, "weather") == ["forecast"]
    assert not searcher.is_behind


async def test_until_the_next_index_is_there_the_last_one_answers() -> None:
    searcher = Searcher()
    searcher.use("1", Source(TOOLS))
    assert await names(searcher, "weather") == ["forecast"]
    later = Source([tool("a", "weather_map")], ready=False)
    searcher.use("2", later)
    assert await names(searcher, "weather") == ["forecast"]
    later.go.set()
    await settled(searcher, 1)
    assert await names(searcher, "weather") == ["weather_map"]


async def test_of_catalogs_that_follow_each_other_only_the_last_is_indexed() -> None:
    searcher = Searcher()
    first, second = Source(TOOLS, ready=False), Source(TOOLS)
    searcher.use("1", first)
    assert await asyncio.to_thread(first.entered.wait, WAIT_S)
    searcher.use("2", second)
    searcher.use("3", Source([tool("a", "weather_map")]))
    first.go.set()
    await settled(searcher, 1)
    assert await names(searcher, "weather") == ["weather_map"]
    assert second.asked == 0


async def test_a_stored_index_needs_no_definitions(tmp_path: Path) -> None:
    first, again = Source(TOOLS), Source(TOOLS)
    one = Searcher(store=tmp_path)
    one.use("1", first)
    expected = await names(one, "issue")
    two = Searcher(store=tmp_path)
    two.use("1", again)
    assert await names(two, "issue") == expected
    assert (first.asked, again.asked) == (1, 0)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\0" * 500, None])
async def test_a_damaged_index_is_built_again(tmp_path: Path, damage: bytes | None) -> None:
    said: list[str] = []
    for _ in range(2):
        searcher = Searcher(store=tmp_path, report=said.append)
        searcher.use("1", Source(TOOLS))
        assert await names(searcher, "weather") == ["forecast"]
        (path,) = stored(tmp_path)
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + b"?" * 9 if damage is None else damage)
    assert len(said) == 1
    assert "rebuilt" in said[0]


async def test_only_the_newest_indexes_are_kept(tmp_path: Path) -> None:
    searcher = Searcher(store=tmp_path)
    for count in range(1, 7):
        searcher.use(str(count), Source([tool("a", f"x{n}") for n in range(count)]))
        await names(searcher, "x")
        await settled(searcher, count)
    assert len(stored(tmp_path)) == 3


async def test_a_folder_that_cannot_be_written_is_only_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said: list[str] = []
    searcher = Searcher(store=tmp_path / "file" / "folder", report=said.append)
    searcher.use("1", Source(TOOLS))
    assert await names(searcher, "weather") == ["forecast"]
    assert "cannot be written" in said[0]


async def test_a_search_is_answered_even_if_nothing_can_be_reported(tmp_path: Path) -> None:
    def unheard(words: str) -> None:
        raise RuntimeError("no running event loop")

    def broken() -> list[dict[str, Any]]:
        raise ValueError("half a catalog")

    (tmp_path / "file").touch()
    searcher = Searcher(store=tmp_path / "file" / "folder", report=unheard)
    searcher.use("1", broken)
    with pytest.raises(PorticoError, match="half a catalog"):
        await names(searcher, "x")
    searcher.use("2", Source(TOOLS))
    assert await names(searcher, "weather") == ["forecast"]


async def test_tools_that_cannot_be_read_are_an_error_until_others_come() -> None:
    def broken() -> list[dict[str, Any]]:
        raise ValueError("half a catalog")

    said: list[str] = []
    searcher = Searcher(report=said.append)
    with pytest.raises(PorticoError, match="no catalog is loaded"):
        await searcher.search("x", 5)
    searcher.use("1", broken)
    with pytest.raises(PorticoError, match="half a catalog"):
        await searcher.search("x", 5)
    searcher.use("1", Source(TOOLS))
    assert await names(searcher, "weather") == ["forecast"]
    searcher.use("2", broken)
    assert await names(searcher, "mail") == ["send_email"]


async def test_who_gives_up_waiting_leaves_the_index_to_the_others() -> None:
    searcher, source = Searcher(), Source(TOOLS, ready=False)
    searcher.use("1", source)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await searcher.search("weather", 1)
    source.go.set()
    assert await names(searcher, "weather") == ["forecast"]


async def test_a_search_stays_within_its_servers() -> None:
    searcher = Searcher()
    searcher.use("1", Source(TOOLS))
    group = frozenset({"github", "mail"})
    found = await searcher.search("open issue", 9, servers=group)
    assert {hit.server for hit in found} == {"github"}
    assert await names(searcher, "open issue", server="gitlab", servers=group) == []


async def test_a_repeated_query_comes_from_the_cache_and_a_new_catalog_empties_it() -> None:
    searcher = Searcher()
    searcher.use("1", Source(TOOLS))
    first = await searcher.search("weather", 5)
    first.clear()
    assert await names(searcher, "weather") == ["forecast"]
    assert searcher.status()["cache"] == {"hits": 1, "misses": 1}
    searcher.use("2", Source([tool("a", "weather_map")]))
    await settled(searcher, 1)
    assert await names(searcher, "weather") == ["weather_map"]
    for number in range(CACHED + 50):
        await names(searcher, f"weather {number}")
    before = searcher.status()["cache"]
    for number in (CACHED + 49, 50, 49):  # the last is new again, since only so many are kept
        await names(searcher, f"weather {number}")
    after = searcher.status()["cache"]
    assert after == {"hits": before["hits"] + 2, "misses": before["misses"] + 1}


async def test_of_an_endless_query_only_the_beginning_is_read_and_kept() -> None:
    searcher = Searcher()
    searcher.use("1", Source(TOOLS))
    endless = "send a mail " * 1_000
    assert await names(searcher, endless) == await names(searcher, endless[:-1])
    assert searcher.status()["cache"] == {"hits": 1, "misses": 1}


async def test_vectors_join_when_they_are_ready(tmp_path: Path) -> None:
    model = Letters()
    vectors = Vectors(folder=str(tmp_path), report=print, model=lambda: model)
    searcher = Searcher(vectors=vectors, store=tmp_path)
    searcher.use("1", Source(TOOLS))
    await names(searcher, "weather")
    await asyncio.to_thread(vectors.wait)
    assert await names(searcher, "wthr nxt frcst dys", 1) == ["forecast"]
    assert searcher.status()["vectors"] == {"ready": True, "made": 5, "of": 5}
    model.broken = True
    assert await names(searcher, "send mail", 1) == ["send_email"]
    await searcher.close()


async def test_a_reranker_has_the_last_word_and_its_failure_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_RERANK_KEY", "k")
    async with endpoint() as fake:
        reranker = Reranker(
            "openai", "m", url=fake.url, key_env="TEST_RERANK_KEY", timeout_s=WAIT_S
        )
        searcher = Searcher(reranker=reranker, report=print)
        searcher.use("1", Source(TOOLS))
        fake.status = "500 Oops"
        local = await searcher.search("open an issue", 2)
        fake.status = "200 OK"
        fake.says_openai('["gitlab/createIssue"]')
        found = await searcher.search("open an issue", 2)
        assert [hit.server for hit in local] == ["github", "gitlab"]
        assert [hit.server for hit in found] == ["gitlab", "github"]
        asked = len(fake.asked)
        for same in ("open an issue", "Open an Issue", " an  issue open "):
            assert await searcher.search(same, 2) == found
        assert len(fake.asked) == asked
        await searcher.search("open two issues", 2)
        assert len(fake.asked) == asked + 1
        await searcher.close()


def test_words_alone_import_nothing_heavy() -> None:
    import subprocess
    import sys

    code = (
        "import sys, asyncio; from portico.gateway.search.searcher import Searcher\n"
        "searcher = Searcher(); searcher.use('1', lambda: [{'server': 'a', 'name': 'x'}])\n"
        "assert asyncio.run(searcher.search('x', 1))\n"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'httptools'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT_S)


def test_the_config_says_what_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    plain = Searcher.configured(Search(), str(tmp_path))
    assert plain.status()["vectors"] is None
    assert plain.status()["rerank"] == "off"
    rerank = Rerank(provider="openai", model="m", key_env="OPENAI_API_KEY")
    full = Searcher.configured(Search(vectors=True, rerank=rerank), str(tmp_path))
    assert full.status()["vectors"] == {"ready": False, "made": 0, "of": 0}
    assert full.status()["rerank"] == "off: OPENAI_API_KEY is not set"


async def test_a_missing_model_leaves_words(tmp_path: Path) -> None:
    said: list[str] = []
    config = Search(vectors=True, model=str(tmp_path / "nowhere"))
    searcher = Searcher.configured(config, str(tmp_path), said.append)
    searcher.use("1", Source(TOOLS))
    assert await names(searcher, "weather") == ["forecast"]
    await until(lambda: bool(said))
    assert "without vectors" in said[0]
    assert str(tmp_path / "nowhere") in said[0]
