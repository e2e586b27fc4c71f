"""Answers the permission requests of one turn, by the policy or by a person or model."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from portico.agents.call_paths import CallPath
from portico.agents.delegation import AgentAnswer, AgentLaunch, AgentQuestion
from portico.agents.lenient import fields, text
from portico.agents.permissions import (
    REJECTING,
    KnownCall,
    PermissionOption,
    ToolCall,
    allowing,
    decide,
    options_in,
    pick,
    resolved,
    tool_call,
)
from portico.agents.questions import Questions

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}
"""The answer to every request that is open when the turn is cancelled."""

REJECTIONS = ("denied", "answered_reject", "expired", "unanswered")
"""The decisions after which an agent may not go ahead."""


class PermissionBroker:
    """The permission requests of one turn; each decision is counted and recorded."""

    def __init__(
        self,
        launch: AgentLaunch,
        folder: str,
        questions: Questions,
        record: Callable[[str], None],
        known_call: Callable[[str], KnownCall | None],
    ) -> None:
        self.decisions: Counter[str] = Counter()
        """`allowed`, `denied`, `answered_allow`, `answered_reject`, `expired`, `unanswered` and
        `cancelled`."""
        self._policy = resolved(launch.permissions, folder)
        self._preferred = launch.preferred_options
        self._folder = folder
        self._questions = questions
        self._record = record
        self._known_call = known_call

    async def answer(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Return the outcome of a request."""
        requested = fields(params.get("toolCall"))
        known = self._known_call(text(requested.get("toolCallId")))
        call = await asyncio.to_thread(tool_call, requested, self._folder, known)
        options = options_in(params)
        decision = decide(self._policy, call, self._folder)
        if decision == "ask":
            return await self._ask(call, options)
        chosen = self._allowing(options) if decision == "allow" else None
        by = f"by the policy ({decision})"
        if decision == "allow" and chosen is None:
            by = "because it offers no option that allows this once"
        return self._settle("allowed" if chosen else "denied", call, options, chosen, by)

    def denies(self, kind: str, path: CallPath | None) -> bool:
        """True if the policy denies a callback of this kind; granted ones need no question."""
        paths = () if path is None else (path,)
        return decide(self._policy, ToolCall(kind, "", paths), self._folder) == "deny"

    def _allowing(self, options: Sequence[PermissionOption]) -> PermissionOption | None:
        return pick(options, allowing(self._policy), self._preferred)

    async def _ask(self, call: ToolCall, options: list[PermissionOption]) -> Mapping[str, Any]:
        kinds = (*allowing(self._policy), *REJECTING)
        offered = [option for option in options if option.kind in kinds]
        if not any(option.kind in allowing(self._policy) for option in offered):
            by = "because it offers no option that allows this once"
            return self._settle("denied", call, options, None, by)
        question = AgentQuestion(
            kind="permission",
            message=f"{describe_call(call)}: allow it?",
            schema=_schema(offered),
            for_model=self._policy.ask == "model",
            deadline_s=self._policy.timeout_s,
        )
        self._record(f"permission requested: {describe_call(call)}")
        try:
            answer = await self._questions.ask(question)
        except TimeoutError:
            by = f"because there was no answer within {self._policy.timeout_s:g} s"
            return self._settle("expired", call, options, None, by)
        if answer is None:
            if self._questions.is_cancelled:
                self.decisions["cancelled"] += 1
                self._record(f"permission cancelled with the turn: {describe_call(call)}")
                return CANCELLED
            return self._settle(
                "unanswered", call, options, None, "because there is no person or model to answer"
            )
        chosen = _chosen(answer, offered)
        allowed = chosen is not None and chosen.kind in allowing(self._policy)
        decision = "answered_allow" if allowed else "answered_reject"
        return self._settle(decision, call, options, chosen, "by the answer to the question")

    def _settle(
        self,
        decision: str,
        call: ToolCall,
        options: Sequence[PermissionOption],
        chosen: PermissionOption | None,
        by: str,
    ) -> Mapping[str, Any]:
        """Record a decision and return its outcome; without a chosen option, it is a reject."""
        self.decisions[decision] += 1
        option = chosen or pick(options, REJECTING)
        words = "rejected" if option is None or option.kind in REJECTING else "allowed"
        always = " for good" if option is not None and option.kind.endswith("_always") else ""
        self._record(f"permission {words}{always} {by}: {describe_call(call)}")
        if option is None:
            return CANCELLED  # an agent that offers no reject understands only this as a no
        return {"outcome": {"outcome": "selected", "optionId": option.id}}


def describe_call(call: ToolCall) -> str:
    """Return a tool call for people: its kind, title and paths."""
    shown = [path.named for path in call.paths[:3] if path.named not in call.title]
    more = len(call.paths) - 3
    places = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return " ".join(part for part in (call.kind, call.title, places and f"({places})") if part)


def _schema(options: Sequence[PermissionOption]) -> dict[str, Any]:
    choice = {
        "type": "string",
        "title": "Decision",
        "enum": [option.id for option in options],
        "enumNames": [option.name for option in options],
    }
    return {"type": "object", "properties": {"option": choice}, "required": ["option"]}


def _chosen(answer: AgentAnswer, offered: Sequence[PermissionOption]) -> PermissionOption | None:
    """Return the option of an answer; None, which rejects, for one that was not offered."""
    if answer.action != "accept":
        return None
    id = answer.content.get("option")
    return next((option for option in offered if option.id == id), None)
