"""The questions of an agent as a person reads them: Portico's words, around all that it named."""

from typing import Any

from msgspec import Struct

from portico.agents.turns.call_paths import CallPath
from portico.agents.turns.lenient import excerpt
from portico.agents.turns.permissions import ToolCall

_MAX_PATH = 200
_MAX_PATHS = 12_000
"""The characters of all paths that are shown."""


class QuestionSource(Struct, frozen=True, kw_only=True):
    """The agent, the task and the folder that questions are about."""

    agent: str
    task_id: str
    prompt: str
    folder: str

    def ask_permission(self, call: ToolCall) -> str:
        """Return the question whether a tool call is allowed."""
        kind, tool = excerpt(call.kind, 40), excerpt(call.tool)
        lines = [f"{self.agent}: {kind} {call.title or tool}: allow it?"]
        if tool and tool not in lines[0]:
            lines.append(f"tool: {tool}")
        if call.arguments:
            lines.append(f"arguments: {call.arguments}")
        if call.paths:
            lines.append(f"paths: {_listed(call)}")
        return self._about(lines)

    def pass_on(self, message: Any) -> str:
        """Return a question in the agent's own words."""
        return self._about([f"{self.agent}: {excerpt(message, 2000)}"])

    def _about(self, lines: list[str]) -> str:
        lines.append(f"folder: {excerpt(self.folder, _MAX_PATH)}")
        if self.task_id:
            lines.append(f"task: {self.task_id}, {excerpt(self.prompt, 100)}")
        return "\n".join(lines)


def _listed(call: ToolCall) -> str:
    """Return every path of a call, as far as there is room."""
    shown: list[str] = []
    for path in call.paths:
        shown.append(_shown(path))
        if sum(map(len, shown)) > _MAX_PATHS:
            break
    is_cut = call.has_more_paths or len(shown) < len(call.paths)
    return ", ".join(shown) + (", and more than can be shown" if is_cut else "")


def _shown(path: CallPath) -> str:
    named = excerpt(path.named, _MAX_PATH)
    if path.real == path.named:
        return named
    return f"{named} (leads to {excerpt(path.real, _MAX_PATH)})"
