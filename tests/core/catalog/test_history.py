"""The history of definitions, and the changes that it reports."""

import errno
import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog.history import MAX_CHANGES, History, change_fields, change_line
from portico.core.catalog.history_store import HistoryStore
from portico.core.model.offer import Listed, Offer
from portico.core.model.version import Version
from portico.core.state.checksummed import pack

_NAMES = st.sampled_from(["a", "b", "c", "d"])
_WORDS = st.sampled_from(["one", "two"])
_SURVEYS = st.lists(st.dictionaries(_NAMES, _WORDS), min_size=1, max_size=8)


def _offer(tools: dict[str, str], instructions: str = "", **lists: dict[str, Any]) -> Offer:
    def listed(items: dict[str, Any], key: str) -> Listed:
        raw = [json.dumps({key: name, "description": of}) for name, of in items.items()]
        return Listed(tuple(one.encode() for one in raw), tuple(items))

    found = {"tools": listed(tools, "name")}
    found |= {kind: listed(items, "uri") for kind, items in lists.items()}
    introduction = json.dumps({"instructions": instructions} if instructions else {})
    return Offer(Version.V2025_11_25, introduction.encode(), found, 0.0)


class _Watch:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "history"


def _kept(folder: Path, reports: list[str] | None = None) -> History:
    store = HistoryStore(str(folder), "key", report=(reports if reports is not None else []).append)
    return History(store, clock=_Watch())


def _words(history: History, facts: Offer, view: str = "legacy") -> list[str]:
    return [f"{one.kind} {one.name} {one.change}" for one in history.compare(view, facts)]


def test_the_first_survey_says_nothing_and_later_ones_what_is_new(folder: Path) -> None:
    history = _kept(folder)
    assert _words(history, _offer({"a": "one"}, "do")) == []
    assert _words(history, _offer({"a": "one"}, "do")) == []
    assert _words(history, _offer({"a": "two", "b": "one"}, "do")) == [
        "tool a changed",
        "tool b appeared",
    ]
    assert _words(history, _offer({"a": "two", "b": "one"}, "do not")) == ["instructions  changed"]


def test_instructions_that_appear_are_a_change(folder: Path) -> None:
    history = _kept(folder)
    history.compare("legacy", _offer({}))
    assert _words(history, _offer({}, "obey")) == ["instructions  changed"]


def test_only_the_meaning_counts_and_not_how_it_is_written() -> None:
    history = History()
    spaced = Listed((b'{ "title":"A", "name":"a" }',), ("a",))
    plain = Listed((b'{"name":"a","title":"\\u0041"}',), ("a",))
    for listed in (spaced, plain):
        facts = Offer(Version.V2025_11_25, b"{}", {"tools": listed}, 0.0)
        assert history.compare("legacy", facts) == []


def test_the_size_and_date_of_a_resource_are_no_change_but_its_description_is() -> None:
    history = History()
    for size in (1, 2):
        raw = b'{"uri":"x:y","size":%d,"annotations":{"lastModified":"%d"}}' % (size, size)
        facts = Offer(Version.V2025_11_25, b"{}", {"resources": Listed((raw,), ("x:y",))}, 0.0)
        assert history.compare("legacy", facts) == []
    raw = b'{"uri":"x:y","description":"obey"}'
    facts = Offer(Version.V2025_11_25, b"{}", {"resources": Listed((raw,), ("x:y",))}, 0.0)
    assert [one.kind for one in history.compare("legacy", facts)] == ["resource"]


def test_it_survives_a_restart(folder: Path) -> None:
    _kept(folder).compare("legacy", _offer({"a": "one"}))
    again = _kept(folder)
    assert _words(again, _offer({"a": "two"})) == ["tool a changed"]
    assert [one["name"] for one in _kept(folder).recent()] == ["a"]


def test_a_tool_that_was_away_and_returns_is_only_told_of_if_it_is_another() -> None:
    history = History()
    history.compare("legacy", _offer({"a": "one", "b": "one"}))
    assert _words(history, _offer({"b": "one"})) == []
    assert _words(history, _offer({"a": "one", "b": "one"})) == []
    history.compare("legacy", _offer({"b": "one"}))
    assert _words(history, _offer({"a": "two", "b": "one"})) == ["tool a changed"]


def test_a_list_that_could_not_be_had_forgets_nothing() -> None:
    history = History()
    history.compare("legacy", _offer({"a": "one"}))
    history.compare("legacy", Offer(Version.V2025_11_25, b"{}", {}, 0.0))
    assert _words(history, _offer({"a": "two"})) == ["tool a changed"]


def test_a_client_with_other_capabilities_sees_the_same_server() -> None:
    history = History()
    history.compare("legacy", _offer({"a": "one"}))
    assert _words(history, _offer({"a": "two"}), 'legacy{"roots":{}}') == ["tool a changed"]
    assert _words(history, _offer({"a": "one"}), "legacy") == []
    assert _words(history, _offer({"a": "three"}), "modern") == []


def test_each_change_has_when_the_one_before_was_first_and_last_seen() -> None:
    watch = _Watch()
    history = History(clock=watch)
    for tools in ({"a": "one"}, {"a": "one"}, {"a": "two", "b": "one"}):
        changes = history.compare("legacy", _offer(tools))
    changed, appeared = changes
    assert (changed.first_seen, changed.last_seen, changed.time) == (1001.0, 1002.0, 1003.0)
    assert change_line("x", change_fields(changed)) == (
        "x: tool a changed (previous version first seen 1970-01-01T00:16:41Z, "
        "last seen 1970-01-01T00:16:42Z)"
    )
    assert change_line("x", change_fields(appeared)) == (
        "x: tool b appeared (server first seen 1970-01-01T00:16:41Z, "
        "last seen without it 1970-01-01T00:16:42Z)"
    )


def test_what_keeps_changing_stays_bounded(folder: Path) -> None:
    history = _kept(folder)
    lines: list[str] = []
    for number in range(400):
        tools = {f"t{n}": "one" for n in range(number, number + 3)} | {"same": str(number)}
        lines += history.lines("x", history.compare("legacy", _offer(tools)))
    assert len(lines) == 61
    assert "keep changing" in lines[-1]
    assert len(history.recent()) == 10
    kept = HistoryStore(str(folder), "key").load()
    assert kept is not None
    assert len(kept.changes) == MAX_CHANGES
    assert [one.name for one in kept.changes[-2:]] == ["t401", "same"]
    assert max(kept.changes, key=lambda one: one.times).name == "same"


def test_names_are_safe_for_a_terminal() -> None:
    history = History()
    history.compare("legacy", _offer({}))
    change = history.compare("legacy", _offer({"a\x1b[2J\nportico: fine\u202e": "one"}))[0]
    assert change_line("x", change_fields(change)).isprintable()


def test_a_damaged_file_begins_a_new_history_and_a_newer_one_is_left_alone(folder: Path) -> None:
    reports: list[str] = []
    _kept(folder).compare("legacy", _offer({"a": "one"}))
    file = folder / "key.history"
    whole = file.read_bytes()
    for damaged in (whole[:-5], whole.replace(b'"format":2', b'"format":9'), b"", b"\xff\n{}"):
        file.write_bytes(damaged)
        assert _words(_kept(folder, reports), _offer({"a": "two"})) == []
        assert "is damaged" in reports[-1]
    newer = pack("history", 3, b"{}")
    file.write_bytes(newer)
    assert _words(_kept(folder, reports), _offer({"a": "two"})) == []
    assert file.read_bytes() == newer
    assert "newer Portico" in reports[-1]


def test_a_history_of_the_first_format_goes_on(folder: Path) -> None:
    _kept(folder).compare("legacy", _offer({"a": "one"}))
    file = folder / "key.history"
    rest = file.read_bytes().partition(b"\n")[2]
    digest = blake2b(rest, person=b"history 1").hexdigest()
    first = json.dumps({"portico": "history", "format": 1, "digest": digest}).encode()
    file.write_bytes(first + b"\n" + rest)

    reports: list[str] = []
    assert _words(_kept(folder, reports), _offer({"a": "two"})) == ["tool a changed"]
    assert b'"format":2' in file.read_bytes()
    assert reports == []


def test_a_history_that_cannot_be_read_is_left_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kept(folder).compare("legacy", _offer({"a": "one"}))
    file = folder / "key.history"
    before = file.read_bytes()

    def fail(*_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    reports: list[str] = []
    history = _kept(folder, reports)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fstat", fail)
        history.compare("legacy", _offer({"a": "two"}))
    assert _words(history, _offer({"a": "three"})) == ["tool a changed"]
    assert file.read_bytes() == before
    assert len(reports) == 1
    assert "cannot be read" in reports[0]


def test_a_folder_that_cannot_be_written_is_reported_and_changes_are_still_found(
    tmp_path: Path,
) -> None:
    (tmp_path / "history").write_text("not a folder")
    reports: list[str] = []
    history = _kept(tmp_path / "history", reports)
    history.compare("legacy", _offer({"a": "one"}))
    assert _words(history, _offer({"a": "two"})) == ["tool a changed"]
    assert "cannot be" in reports[0]


@given(_SURVEYS)
def test_what_is_told_is_what_differs_from_the_last_time_it_was_seen(
    surveys: list[dict[str, str]],
) -> None:
    history = History()
    last: dict[str, str] = {}
    for number, tools in enumerate(surveys):
        found = {(one.name, one.change) for one in history.compare("legacy", _offer(tools))}
        wanted = {
            (name, "changed" if name in last else "appeared")
            for name, of in tools.items()
            if last.get(name) != of
        }
        assert found == (wanted if number else set())
        last |= tools
