"""An index finds tools, and survives its way to the disk and back."""

from typing import Any

import msgspec
import pytest

from portico.gateway.search.index import FORMAT
from portico.search import Hit, ToolIndex
from tests.gateway.search.tools import tool

TOOLS = [
    tool("mail", "send_email", "Send a message to somebody.", to="Who gets it"),
    tool("mail", "list_folders", "All folders of the mailbox."),
    tool("papers", "download_paper", "Save the PDF of a paper.", doi="Digital object identifier"),
    tool("papers", "search_papers", "Find papers by words."),
    tool("weather", "forecast", "The weather of the next days.", city="Where"),
    tool("github", "createIssue", "Open an issue in a repository."),
    tool("gitlab", "createIssue", "Open an issue in a project."),
]


@pytest.fixture
def index() -> ToolIndex:
    return ToolIndex.build(TOOLS)


def names(hits: list[Hit]) -> list[str]:
    return [hit.name for hit in hits]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("weather tomorrow", "forecast"),
        ("mailing somebody", "send_email"),
        ("digital object identifiers", "download_paper"),
        ("delete a repo issue", "createIssue"),
    ],
)
def test_words_find_their_tool(index: ToolIndex, query: str, expected: str) -> None:
    assert index.search(query)[0].name == expected


def test_a_whole_task_finds_the_tools_of_each_step(index: ToolIndex) -> None:
    found = index.search("Download the paper about whales and mail it to Ana", limit=3)
    assert {"download_paper", "send_email"} <= set(names(found))


def test_one_step_of_a_task_does_not_fill_the_first_places() -> None:
    alike = [tool("papers", f"download_paper_{n}", "Download a paper.") for n in range(20)]
    others = [tool(f"s{n}", f"thing_{n}", "Something else.") for n in range(50)]
    index = ToolIndex.build([*alike, *others, tool("mail", "send_mail", "Mail something.")])
    assert "send_mail" in names(index.search("download the paper and mail it to Ana"))


@pytest.mark.parametrize("query", ["createIssue", "create_issue", " create issue ", "CREATE-ISSUE"])
def test_a_name_however_it_is_written_comes_first(index: ToolIndex, query: str) -> None:
    assert names(index.search(query))[:2] == ["createIssue", "createIssue"]


def test_a_server_and_a_name_find_that_very_tool(index: ToolIndex) -> None:
    assert index.search("gitlab__createIssue")[0].server == "gitlab"
    assert index.search("create an issue on gitlab")[0].server == "gitlab"


def test_a_search_can_stay_within_one_server(index: ToolIndex) -> None:
    assert {hit.server for hit in index.search("papers issue mail", 50, server="papers")} == {
        "papers"
    }
    assert index.search("papers", server="nobody") == []


def test_the_very_name_wins_over_one_spelled_alike() -> None:
    index = ToolIndex.build([tool("a", "get_user"), tool("b", "getUser")])
    assert names(index.search("getUser")) == ["getUser", "get_user"]
    assert names(index.search("get_user")) == ["get_user", "getUser"]


@pytest.mark.parametrize("query", ["", "   ", "the", "qqqq", "\0", "🦄"])
def test_what_matches_nothing_finds_nothing(index: ToolIndex, query: str) -> None:
    assert index.search(query) == []


def test_an_empty_catalog_can_be_searched_and_stored() -> None:
    restored = ToolIndex.from_bytes(ToolIndex.build([]).to_bytes())
    assert restored is not None
    assert len(restored) == 0
    assert restored.search("anything") == []


def test_of_tools_with_one_name_on_one_server_the_first_is_kept() -> None:
    index = ToolIndex.build([tool("a", "x", "whales"), tool("a", "x", "ships"), tool("a", "y")])
    assert len(index) == 2
    assert names(index.search("whales")) == ["x"]
    assert index.search("ships") == []


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"name": 7, "description": None, "inputSchema": []},
        {"name": "x", "title": {}, "inputSchema": {"properties": ["a"]}},
        {"name": "x", "inputSchema": {"properties": {"a": True, "b": {"description": 1}}}},
    ],
)
def test_a_broken_definition_does_not_spoil_the_others(broken: dict[str, Any]) -> None:
    assert names(ToolIndex.build([broken, *TOOLS]).search("forecast"))[0] == "forecast"


def test_a_stored_index_answers_as_the_one_it_was_made_from(index: ToolIndex) -> None:
    restored = ToolIndex.from_bytes(index.to_bytes())
    assert restored is not None
    assert len(restored) == len(TOOLS)
    assert restored.to_bytes() == index.to_bytes()
    for query in ("mail", "create issue", "download the paper, then mail it"):
        assert restored.search(query) == index.search(query)


def test_bytes_of_another_format_are_no_index(index: ToolIndex) -> None:
    fields = msgspec.msgpack.decode(index.to_bytes())
    assert ToolIndex.from_bytes(msgspec.msgpack.encode([FORMAT + 1, *fields[1:]])) is None


def test_damaged_bytes_are_no_index(index: ToolIndex) -> None:
    data = index.to_bytes()
    fields = msgspec.msgpack.decode(data)
    assert ToolIndex.from_bytes(b"") is None
    assert ToolIndex.from_bytes(data[:-3]) is None
    fewer_names = [fields[0], fields[1][:-1], fields[2], fields[3][:-1], fields[4]]
    assert ToolIndex.from_bytes(msgspec.msgpack.encode(fewer_names)) is None
    fewer_servers = [*fields[:2], fields[2][:1], *fields[3:]]
    assert ToolIndex.from_bytes(msgspec.msgpack.encode(fewer_servers)) is None


_ZONE = "An IANA timezone name (e.g., 'America/New_York', 'Asia/Tokyo')."
CLOCK = [
    {
        "server": "time",
        "name": "convert_time",
        "description": "Convert time between timezones",
        "inputSchema": {"properties": {"time": {}, "target_timezone": {"description": _ZONE}}},
    },
    {
        "server": "time",
        "name": "get_current_time",
        "description": "Get current time in a specific timezone",
        "inputSchema": {"properties": {"timezone": {"description": "An IANA timezone name."}}},
    },
]


@pytest.mark.parametrize("others", [[], TOOLS])
def test_a_question_finds_a_tool_that_looks_up_before_one_that_acts(
    others: list[dict[str, Any]],
) -> None:
    index = ToolIndex.build([*CLOCK, *others])
    assert index.search("what time is it in Tokyo")[0].name == "get_current_time"
    assert index.search("what is the time when converted to Tokyo")[0].name == "convert_time"
    assert index.search("convert a time to Tokyo")[0].name == "convert_time"
