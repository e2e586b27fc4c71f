"""Answers the permission requests of one turn, by the policy or by a person or model."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from portico.agents.turns.call_paths import CallPath
from portico.agents.turns.called_tool import tool_of_server
from portico.agents.turns.delegation import AgentAnswer, AgentLaunch, AgentQuestion, ProvidedServer
from portico.agents.turns.lenient import excerpt, fields, text
from portico.agents.turns.permissions import (
    ANSWERS,
    OTHER,
    REJECT_ONCE,
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
from portico.agents.turns.question_text import QuestionSource
from portico.agents.turns.questions import Questions

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}
"""The answer to every request that is open when the turn is cancelled."""

REJECTIONS = ("denied", "answered_reject", "expired", "unanswered")
"""The decisions after which an agent may not go ahead."""


class PermissionBroker:
    """The permission requests of one turn; each decision is counted and recorded."""

    def __init__(
        self,
        launch: AgentLaunch,
        source: QuestionSource,
        servers: Sequence[ProvidedServer],
        questions: Questions,
        record: Callable[[str], None],
        known_call: Callable[[str], KnownCall | None],
    ) -> None:
        self.decisions: Counter[str] = Counter()
        """`allowed`, `denied`, `answered_allow`, `answered_reject`, `expired`, `unanswered` and
        `cancelled`."""
        self._folder = source.folder
        self._policy = resolved(launch.permissions, self._folder)
        self._preferred = launch.preferred_options
        self._source = source
        self._servers = servers
        self._questions = questions
        self._record = record
        self._known_call = known_call

    async def answer(self, params: dict[str, Any]) -> Mapping[str, Any]:
        """Return the outcome of a request."""
        requested = fields(params.get("toolCall"))
        known = self._known_call(text(requested.get("toolCallId")))
        call = await asyncio.to_thread(tool_call, requested, self._folder, known)
        options = options_in(params)
        policy, by = self._policy, "by the policy ({})"
        if self._is_listed(requested, call):
            # The config allows it by name. Codex requests it as a command, which it is not.
            call = replace(call, kind=OTHER, earlier_kind="")
            policy, by = replace(policy, default="allow"), "by the tools of the agent ({})"
        decision = decide(policy, call, self._folder)
        if decision == "ask":
            return await self._ask(call, options)
        chosen = self._allowing(options) if decision == "allow" else None
        by = by.format(decision)
        if decision == "allow" and chosen is None:
            by = "because it offers no option that allows this once"
        return self._settle("allowed" if chosen else "denied", call, options, chosen, by)

    def denies(self, kind: str, path: CallPath | None) -> bool:
        """True if the policy denies a callback of this kind; granted ones need no question."""
        paths = () if path is None else (path,)
        return decide(self._policy, ToolCall(kind, "", paths), self._folder) == "deny"

    def _is_listed(self, requested: dict[str, Any], call: ToolCall) -> bool:
        """True if a call is of a tool of ours that the config lists for the agent."""
        for server in self._servers:
            name = tool_of_server(server.name, call.tool, requested)
            if name and server.lists is not None and server.lists(name):
                return True
        return False

    def _allowing(self, options: Sequence[PermissionOption]) -> PermissionOption | None:
        return pick(options, allowing(self._policy), self._preferred)

    async def _ask(self, call: ToolCall, options: list[PermissionOption]) -> Mapping[str, Any]:
        offered = {option.kind for option in options}
        if offered.isdisjoint(allowing(self._policy)):
            by = "because it offers no option that allows this once"
            return self._settle("denied", call, options, None, by)
        kinds = [one for one in (*allowing(self._policy), *REJECTING) if one in offered]
        if REJECT_ONCE not in kinds:
            kinds.append(REJECT_ONCE)  # a person may always say no
        question = AgentQuestion(
            kind="permission",
            message=self._source.ask_permission(call),
            schema=_schema(kinds),
            words={word: word for word, _ in map(ANSWERS.__getitem__, kinds)},
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
        kind = _chosen(answer, kinds)
        chosen = pick(options, (kind,), self._preferred)
        decision = "answered_allow" if kind in allowing(self._policy) else "answered_reject"
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
    shown = [excerpt(path.named) for path in call.paths[:3] if path.named not in call.title]
    more = len(call.paths) - 3
    places = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    kind = excerpt(call.kind, 40)
    return " ".join(part for part in (kind, call.title, places and f"({places})") if part)


def _schema(kinds: Sequence[str]) -> dict[str, Any]:
    choice = {
        "type": "string",
        "title": "Decision",
        "enum": [ANSWERS[kind][0] for kind in kinds],
        "enumNames": [ANSWERS[kind][1] for kind in kinds],
    }
    return {"type": "object", "properties": {"option": choice}, "required": ["option"]}


def _chosen(answer: AgentAnswer, kinds: Sequence[str]) -> str:
    """Return the kind of an answer; an answer that was not offered is a reject."""
    given = answer.content.get("option") if answer.action == "accept" else None
    return next((kind for kind in kinds if ANSWERS[kind][0] == given), REJECT_ONCE)
