"""Collects the updates of one turn, in order, within a bounded memory."""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from portico.agents.turns.bounded_text import BoundedText
from portico.agents.turns.call_paths import paths_in
from portico.agents.turns.called_tool import called_tool
from portico.agents.turns.lenient import excerpt, fields, items, short, text
from portico.agents.turns.permissions import KnownCall, arguments_text
from portico.agents.turns.usage import UsageReports

WRITING = "writing the answer"
"""The progress of an agent that writes text."""
PRINTED = "printed: "
"""The progress of a command begins so; the line that it printed follows."""
MAX_TOOL_CALLS = 200
MAX_PLAN = 100
MAX_CHANGED = 1000
MAX_UNKNOWN = 20
MAX_UNKNOWN_BYTES = 16 * 1024
_MAX_KINDS = 100
_MAX_ID = 200

_VERBS = {
    "read": "reading",
    "edit": "editing",
    "delete": "deleting",
    "move": "moving",
    "search": "searching",
    "execute": "running",
    "think": "thinking",
    "fetch": "fetching",
    "switch_mode": "switching the mode",
}
"""How progress names the kinds of tools; others are `running`."""
_CHANGING = ("edit", "delete", "move")
"""The kinds of tools that change the files that they name."""

Update = dict[str, Any]


class TurnUpdates:
    """The content of the updates so far. Updates before `begin` replay an earlier turn."""

    def __init__(
        self,
        max_text: int,
        *,
        is_new_session: bool,
        progress: Callable[[str], None],
        record: Callable[[str], None],
        said: Callable[[str], None] | None = None,
    ) -> None:
        """`said` receives the agent's text as it comes."""
        self.session_id = ""
        self.kinds: Counter[str] = Counter()
        self.text = BoundedText(max_text)
        self.usage = UsageReports(is_new_session)
        self.tool_calls: dict[str, dict[str, str]] = {}
        self._known: dict[str, KnownCall] = {}
        self.changed: dict[str, None] = {}
        """The paths of files that completed tool calls have changed."""
        self.plan: tuple[Mapping[str, Any], ...] = ()
        self.unknown: deque[bytes] = deque(maxlen=MAX_UNKNOWN)
        self._progress = progress
        self._record = record
        self._said = said
        self._has_begun = False
        self._message = ""
        self._is_apart = False  # the next text is not part of the last message

    def begin(self) -> None:
        """The prompt is sent: the updates from now on are of this turn."""
        self._has_begun = True
        self.usage.begin()

    def add(self, session_id: str, update: Update, raw: bytes) -> None:
        """Take one update."""
        kind = text(update.get("sessionUpdate"))
        if kind == "usage_update" and self._is_ours(session_id):
            self.usage.update(update)
        if not self._has_begun:
            return
        name = short(kind, 60)
        if name in self.kinds or len(self.kinds) < _MAX_KINDS:
            self.kinds[name] += 1
        handle = _HANDLERS.get(kind)
        if handle is None:
            self.unknown.append(raw[:MAX_UNKNOWN_BYTES])
        elif self._is_ours(session_id) or kind in _OF_ANY_SESSION:
            handle(self, update)

    def allowed(self, params: Update) -> None:
        """Take a permission request that was allowed: it may describe its tool call better."""
        self._tool_call(fields(params.get("toolCall")))

    def known_call(self, id: str) -> KnownCall | None:
        """Return the content of the updates about a tool call."""
        call = self.tool_calls.get(id[:_MAX_ID])
        if call is None:
            return None
        return replace(self._known[id[:_MAX_ID]], kind=call["kind"], title=call["title"])

    def _is_ours(self, session_id: str) -> bool:
        # A sub-agent's session has its own id, and its text is not the answer.
        return not session_id or not self.session_id or session_id == self.session_id

    def _message_chunk(self, update: Update) -> None:
        self.usage.chunk(fields(update.get("_meta")))
        message = text(update.get("messageId"))
        added = content_text(update.get("content"))
        if not added:
            return
        if (self._is_apart or message != self._message) and len(self.text):
            added = f"\n\n{added}"
        self._is_apart, self._message = False, message
        self.text.add(added)
        if self._said is not None:
            self._said(added)
        self._progress(WRITING)

    def _thought_chunk(self, update: Update) -> None:
        self.usage.chunk(fields(update.get("_meta")))
        self._progress("thinking")

    def _tool_call(self, update: Update) -> None:
        self._is_apart = True
        id = text(update.get("toolCallId"))[:_MAX_ID]
        call = self.tool_calls.pop(id, None) or {"title": "", "kind": "other", "status": "pending"}
        for key in ("title", "kind", "status"):
            value = excerpt(update.get(key))
            if value:
                call[key] = value
        command = excerpt(fields(update.get("rawInput")).get("command"))
        if command and call["kind"] == "execute":
            call["title"] = command  # some agents name only their tool
        self.tool_calls[id] = call  # the most recent last
        known = self._known.get(id)
        paths = paths_in(update) if known is None else known.paths.joined(paths_in(update))
        self._known[id] = KnownCall(
            paths=paths,
            tool=called_tool(update) if known is None else known.tool,
            arguments=arguments_text(update) or (known.arguments if known is not None else ""),
        )
        if call["status"] == "completed" and call["kind"] in _CHANGING:
            for path in paths.paths:
                if len(self.changed) < MAX_CHANGED:
                    self.changed[path] = None
        if len(self.tool_calls) > MAX_TOOL_CALLS:
            oldest = next(iter(self.tool_calls))
            del self.tool_calls[oldest], self._known[oldest]
        self._progress(describe(call))

    def _plan(self, update: Update) -> None:
        entries = [fields(entry) for entry in items(update.get("entries"))[:MAX_PLAN]]
        self.plan = tuple(
            {key: short(entry.get(key)) for key in ("content", "priority", "status")}
            for entry in entries
        )
        done = sum(entry["status"] == "completed" for entry in self.plan)
        now = next((e["content"] for e in self.plan if e["status"] == "in_progress"), "")
        step = f": {now}" if now else ""
        self._progress(f"plan: {done} of {len(self.plan)} steps done{step}")

    def _mode(self, update: Update) -> None:
        self._record(f"the agent switched to mode {short(update.get('currentModeId'), 60)!r}")

    def _notice(self, update: Update) -> None:
        said = (short(update.get(key)) for key in ("severity", "title", "description"))
        self._record(f"notice of the agent: {': '.join(filter(None, said))}")

    def _compaction(self, update: Update) -> None:
        self._progress("compacting its context")

    def _ignore(self, update: Update) -> None:
        """Known, and without meaning for a delegation."""


def describe(call: Mapping[str, str]) -> str:
    """Return a tool call as progress: `running: npm test`."""
    verb, title = _VERBS.get(call["kind"], "running"), call["title"]
    if call["status"] == "failed":
        return f"failed: {verb} {title}".rstrip()
    return f"{verb}: {title}" if title else verb


def content_text(content: Any) -> str:
    """Return the text of a content block; a link or media as a short mark."""
    block = fields(content)
    match block.get("type"):
        case "text":
            return text(block.get("text"))
        case "resource_link":
            return f"[{short(block.get('name'))}]({short(block.get('uri'), 1000)})"
        case "resource":
            resource = fields(block.get("resource"))
            return text(resource.get("text")) or f"[{short(resource.get('uri'), 1000)}]"
        case "image" | "audio" as kind:
            return f"[{kind} of type {short(block.get('mimeType'), 60)}]"
    return ""


_HANDLERS: Mapping[str, Callable[[TurnUpdates, Update], None]] = {
    "agent_message_chunk": TurnUpdates._message_chunk,
    "agent_thought_chunk": TurnUpdates._thought_chunk,
    "user_message_chunk": TurnUpdates._ignore,
    "tool_call": TurnUpdates._tool_call,
    "tool_call_update": TurnUpdates._tool_call,
    "plan": TurnUpdates._plan,
    "available_commands_update": TurnUpdates._ignore,
    "current_mode_update": TurnUpdates._mode,
    "config_option_update": TurnUpdates._ignore,
    "session_info_update": TurnUpdates._ignore,
    "usage_update": TurnUpdates._ignore,
    "notice": TurnUpdates._notice,
    "compaction_update": TurnUpdates._compaction,
    "compaction_summary_chunk": TurnUpdates._ignore,
}
"""All stable kinds of ACP v1; updates of other kinds are kept as they are."""
SETUP_KINDS = (
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
)
"""Updates about the session, which agents also send before they work on the prompt."""
_OF_ANY_SESSION = ("tool_call", "tool_call_update", "notice")
