"""Updates of a turn: all kinds, any garbage, any number, in a bounded memory."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.agents.turns.turn_updates import (
    MAX_PLAN,
    MAX_TOOL_CALLS,
    MAX_UNKNOWN,
    TurnUpdates,
    content_text,
)


class Collected:
    """A collector, and what it passed on."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.events: list[str] = []
        self.updates = TurnUpdates(
            1000, is_new_session=True, progress=self.shown.append, record=self.events.append
        )
        self.updates.session_id = "s"
        self.updates.begin()

    def add(self, update: str, **more: Any) -> None:
        self.updates.add("s", {"sessionUpdate": update, **more}, b"raw")


X = 100 * "x"


@pytest.mark.parametrize(
    ("kind", "title", "status", "shown"),
    [
        ("execute", "npm test", "in_progress", "running: npm test"),
        ("read", "a.py", "pending", "reading: a.py"),
        ("edit", "a.py", "failed", "failed: editing a.py"),
        ("brand_new", "it", "pending", "running: it"),
        ("think", "", "pending", "thinking"),
        ("execute", "ls\n\x1b[31m rm", "pending", "running: ls \\x1b[31m rm"),
        ("execute", "x" * 1000, "pending", f"running: {X} [... 800 characters ...] {X}"),
    ],
)
def test_a_tool_call_is_shown_as_progress(kind: str, title: str, status: str, shown: str) -> None:
    seen = Collected()
    seen.add("tool_call", toolCallId="1", kind=kind, title=title, status=status)
    assert seen.shown == [shown]


def test_only_completed_calls_of_changing_kinds_report_changed_files() -> None:
    seen = Collected()
    for kind, status, path in (
        ("edit", "completed", "/a"),
        ("delete", "completed", "/b"),
        ("move", "in_progress", "/c"),
        ("edit", "failed", "/d"),
        ("read", "completed", "/e"),
    ):
        where = [{"path": path}]
        seen.add("tool_call", toolCallId=path, kind=kind, status=status, locations=where)
    assert list(seen.updates.changed) == ["/a", "/b"]
    diff = [{"type": "diff", "path": "/f", "newText": ""}]
    seen.add("tool_call_update", toolCallId="/c", status="completed", content=diff)
    assert list(seen.updates.changed) == ["/a", "/b", "/c", "/f"]


def test_an_update_of_a_tool_call_changes_only_what_it_names() -> None:
    seen = Collected()
    seen.add("tool_call", toolCallId="1", kind="read", title="a", status="pending")
    seen.add("tool_call_update", toolCallId="1", status="completed", title=None)
    seen.add("tool_call_update", toolCallId="2", status="failed")
    assert list(seen.updates.tool_calls.values()) == [
        {"title": "a", "kind": "read", "status": "completed"},
        {"title": "", "kind": "other", "status": "failed"},
    ]


def test_a_command_says_more_than_the_name_of_its_tool() -> None:
    seen = Collected()
    raw = {"command": "npm  test", "cwd": "/"}
    seen.add("tool_call", toolCallId="1", kind="execute", title="Shell", rawInput=raw)
    seen.add("tool_call", toolCallId="2", kind="edit", title="a.py", rawInput=raw)
    assert seen.shown == ["running: npm test", "editing: a.py"]


def test_a_plan_is_shown_with_its_step() -> None:
    seen = Collected()
    entries = [
        {"content": "one", "status": "completed", "priority": "low"},
        {"content": "two", "status": "in_progress", "priority": "low"},
        "junk",
    ]
    seen.add("plan", entries=entries)
    assert seen.shown == ["plan: 1 of 3 steps done: two"]
    seen.add("plan", entries=entries * MAX_PLAN)
    assert len(seen.updates.plan) == MAX_PLAN


def test_messages_are_separated_by_their_ids_and_by_tool_calls() -> None:
    seen = Collected()
    for message, said in (("1", "a"), ("1", "b"), ("2", "c")):
        content = {"type": "text", "text": said}
        seen.add("agent_message_chunk", messageId=message, content=content)
    seen.add("tool_call", toolCallId="1")
    seen.add("agent_message_chunk", messageId="2", content={"type": "text", "text": "d"})
    assert seen.updates.text.value() == "ab\n\nc\n\nd"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"type": "text", "text": "t"}, "t"),
        ({"type": "resource_link", "name": "n", "uri": "u:v"}, "[n](u:v)"),
        ({"type": "resource", "resource": {"uri": "u", "text": "inside"}}, "inside"),
        ({"type": "resource", "resource": {"uri": "u", "blob": "AA=="}}, "[u]"),
        ({"type": "image", "mimeType": "image/png", "data": "AA=="}, "[image of type image/png]"),
        ({"type": "new"}, ""),
        ("junk", ""),
        (None, ""),
    ],
)
def test_every_content_block_has_a_text(content: Any, text: str) -> None:
    assert content_text(content) == text


@pytest.mark.parametrize(
    "kind",
    [
        "user_message_chunk",
        "available_commands_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "compaction_summary_chunk",
    ],
)
def test_known_updates_without_a_meaning_here_are_only_counted(kind: str) -> None:
    seen = Collected()
    seen.add(kind, content={"type": "text", "text": "x"})
    assert seen.updates.kinds == {kind: 1}
    assert (seen.shown, seen.events, len(seen.updates.text)) == ([], [], 0)
    assert not seen.updates.unknown


def test_notices_are_recorded_and_compaction_is_shown() -> None:
    seen = Collected()
    seen.add("notice", severity="warning", title="rate limited", description=None)
    seen.add("compaction_update", status="in_progress")
    assert seen.events == ["notice of the agent: warning: rate limited"]
    assert seen.shown == ["compacting its context"]


def test_floods_are_bounded() -> None:
    seen = Collected()
    for number in range(5000):
        seen.add("tool_call", toolCallId=str(number), title="t")
        seen.add(f"kind-{number}")
        seen.add("agent_message_chunk", content={"type": "text", "text": "word "})
    updates = seen.updates
    assert len(updates.tool_calls) == MAX_TOOL_CALLS
    assert next(reversed(updates.tool_calls)) == "4999"
    assert len(updates.unknown) == MAX_UNKNOWN
    assert len(updates.kinds) <= 100
    assert len(updates.text.value()) < 1100


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
KEYS = ["content", "title", "kind", "status", "toolCallId", "entries", "_meta", "messageId", "cost"]
KINDS = [
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "plan",
    "usage_update",
    "notice",
]


@given(st.sampled_from([*KINDS, "x"]) | JSON, st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_json_can_be_an_update(kind: Any, more: dict[str, Any]) -> None:
    seen = Collected()
    seen.updates.add("s", {"sessionUpdate": kind, **more}, b"{}")
    assert seen.updates.kinds.total() == 1
