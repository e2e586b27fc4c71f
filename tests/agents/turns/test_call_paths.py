"""The paths of a tool call are found wherever agents put them, within bounds."""

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.agents.turns.call_paths import MAX_PATHS, all_located, paths_in, plain_path

PATCH = """*** Begin Patch
*** Update File: a/b.py
@@
+*** not a file
*** Move to: c d.py
*** End Patch
"""


@pytest.mark.parametrize(
    ("raw", "paths"),
    [
        ({"file_path": "a"}, ["a"]),
        ({"filePath": "a"}, ["a"]),
        ({"notebook_path": "a", "new_source": "print(1)", "cell_id": "x"}, ["a"]),
        ({"targetFile": "a", "file_text": "text"}, ["a"]),
        ({"file_name": "a", "name": "x"}, ["a"]),
        ({"documentURI": "file:///a"}, ["/a"]),
        ({"paths": ["a", "b"]}, ["a", "b"]),
        ({"files": [{"path": "a", "content": "x"}, {"path": "b"}]}, ["a", "b"]),
        ({"source": "a", "destination": "b"}, ["a", "b"]),
        ({"from": "a", "to": "b"}, ["a", "b"]),
        ({"source": "line\nline"}, []),
        ({"changes": {"Makefile": {"type": "add"}}}, ["Makefile"]),
        ({"changes": {"a/path": "text", "b": "text"}}, ["a/path", "b"]),
        ({"edits": [{"old_string": "/x", "new_string": "/y"}]}, []),
        ({"arguments": {"options": [{"cwd": "a"}]}}, ["a"]),
        ({"anything": "FILE://localhost/a%20b#L3"}, ["/a b"]),
        ({"path": "https://example.com/a"}, []),
        ({"patch": PATCH}, ["a/b.py", "c d.py"]),
        (PATCH, ["a/b.py", "c d.py"]),
        ({"command": "cat a/b"}, []),
        ([{"path": 3}, None], []),
    ],
)
def test_the_raw_input_is_searched_for_paths(raw: Any, paths: list[str]) -> None:
    found = paths_in({"rawInput": raw})
    assert (list(found.paths), found.has_more) == (paths, False)


def test_paths_are_found_in_all_parts_of_a_call() -> None:
    call = {
        "locations": [{"path": "file:///a"}, {"line": 3}, "x"],
        "content": [{"type": "diff", "path": "/b"}, {"type": "content"}],
        "rawInput": {"file_path": "/c", "command": "ls", "path": 7},
    }
    assert paths_in(call).paths == ("/a", "/b", "/c")


def nested(levels: int) -> Any:
    return {"path": "a"} if not levels else {"inner": nested(levels - 1)}


@pytest.mark.parametrize(
    "raw",
    [
        {"paths": [str(number) for number in range(MAX_PATHS + 1)]},
        {"path": "x" * 5000},
        {"values": [0] * 20_000},
        nested(20),
    ],
)
def test_a_call_beyond_the_bounds_has_more_paths(raw: Any) -> None:
    found = paths_in({"rawInput": raw})
    assert found.has_more
    assert len(found.paths) <= MAX_PATHS


def test_paths_of_updates_are_joined_once() -> None:
    first, second = (paths_in({"rawInput": {"paths": given}}) for given in (["a", "b"], ["b", "c"]))
    assert first.joined(second).paths == ("a", "b", "c")
    many = paths_in({"rawInput": {"paths": [str(n) for n in range(MAX_PATHS)]}})
    assert not many.has_more
    assert many.joined(first).has_more


def test_a_path_that_is_not_a_url_is_not_decoded() -> None:
    assert plain_path("a%20b#c?d") == "a%20b#c?d"
    assert plain_path("file:/a%2fb?x") == "/a/b"


def test_a_path_in_a_home_folder_has_both_readings() -> None:
    named = [path.named for path in all_located(["~/a"], "/folder")]
    assert named == ["/folder/~/a", os.path.expanduser("~/a")]


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.just("file:///a"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "changes", "a/b", "x", ""]), inner)
    ),
    max_leaves=10,
)


@given(JSON, JSON)
def test_any_json_can_be_a_call(raw: Any, locations: Any) -> None:
    found = paths_in({"rawInput": raw, "locations": locations, "content": locations})
    assert all(found.paths)
