"""Questions to the client, with the same interface in both eras.

Legacy: each question is a request to the client, and the handler waits. Modern: a question without
an answer ends the round with `input_required`; the handler runs again with the answers when the
client retries (multi round-trip requests).
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from portico.core.definitions.schema import Schema, structural_check
from portico.core.model.content import ToolResult
from portico.core.model.context import Ask, Context
from portico.core.model.errors import (
    AskError,
    InvalidParams,
    McpError,
    MissingCapability,
    RegistrationError,
)
from portico.core.model.message import Request
from portico.core.model.version import Version
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import declares, needed_capability
from portico.core.state.sealed_states import SealedStates
from portico.library.functions.handler_exceptions import leaves

if TYPE_CHECKING:
    from portico.library.functions.forms import ClassForm

T = TypeVar("T")
ROUND_TTL_S = 600.0
KEY_SIZE = 32


class _ElicitAnswer(Struct):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class _SampleAnswer(Struct):
    role: str
    content: Any
    model: str


class _RootsAnswer(Struct):
    roots: list[dict[str, Any]]


_SHAPES: dict[str, type[Struct]] = {
    "elicitation/create": _ElicitAnswer,
    "sampling/createMessage": _SampleAnswer,
    "roots/list": _RootsAnswer,
}


class _Retry(Struct):
    """The params of a retry; a first request has neither."""

    inputResponses: dict[str, Any] = {}  # noqa: N815  (fields of the wire)
    requestState: str | None = None  # noqa: N815


class Suspended(BaseException):
    """Ends a round: the client must answer these questions first. Not an Exception, so that a
    handler's own `except Exception` cannot swallow it."""

    def __init__(self, asks: Mapping[str, Ask]) -> None:
        super().__init__("the client must answer first")
        self.asks = asks


def suspended_in(group: BaseExceptionGroup) -> Suspended | None:
    """Return the end of a round that passed through a task group, with all its questions; None if
    another task of the group failed."""
    rounds, failures = group.split(Suspended)
    if rounds is None or failures is not None:
        return None
    asks: dict[str, Ask] = {}
    for error in leaves(rounds):
        asks |= error.asks if isinstance(error, Suspended) else {}
    return Suspended(asks)


class _BothEras(Struct):
    """The part of an asker that both eras share."""

    def form(self, kind: type[T]) -> "ClassForm[T]":
        """Return the form that a class describes."""
        from portico.library.functions.forms import ClassForm  # slow to load, and seldom needed

        return ClassForm(kind)

    async def call_tool(
        self, context: Context, name: str, arguments: Mapping[str, Any]
    ) -> ToolResult:
        """Call a downstream tool, whose questions reach the client."""
        from portico.library.functions.downstream_call import call_tool

        return await call_tool(context, name, arguments)


class DirectAsker(_BothEras):
    """Sends questions to a legacy client as requests."""

    _context: Context
    _version: Version

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """Send all questions at the same time and return the answers."""
        if not asks:
            return {}
        peer = self._context.peer
        for ask in asks.values():
            _check(ask, self._context.client_capabilities, self._version)
            if peer is None:
                raise MissingCapability(ask.capability)
        assert peer is not None
        questions = [
            asyncio.ensure_future(peer.ask(ask.method, encode(_legacy_params(ask))))
            for ask in asks.values()
        ]
        try:
            answers = await asyncio.gather(*questions)
        finally:
            for question in questions:
                question.cancel()
            await asyncio.wait(questions)  # pending ones send their cancellation
        return {
            key: _checked(ask, msgspec.json.decode(answer))
            for (key, ask), answer in zip(asks.items(), answers, strict=True)
        }


class ReplayAsker(_BothEras):
    """Answers a modern handler with the answers that the client has sent so far."""

    _context: Context
    answers: dict[str, Any]
    """The answers used so far; the next round gets them too."""
    _given: dict[str, Any]
    asked: dict[str, Any] = {}
    """The words of the questions of this round, by key."""

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """Return all answers, or raise Suspended with the questions that have none. In a task the
        handler runs once: there it waits for them."""
        if self._context.task is not None:
            return await DirectAsker(self._context, Version.V2026_07_28).ask(asks)
        missing: dict[str, Ask] = {}
        for key, ask in asks.items():
            self._check_key(key, ask)
            if key in self.answers:
                continue
            if key in self._given and _is_complete(ask, key, self._given[key]):
                self.answers[key] = self._given[key]
                continue
            _check(ask, self._context.client_capabilities, Version.V2026_07_28)
            missing[key] = ask
        if missing:
            raise Suspended(missing)
        return {key: self.answers[key] for key in asks}

    def _check_key(self, key: str, ask: Ask) -> None:
        """Refuse a second question with the key of the first, whose answer it would get."""
        words = (ask.method, ask.params.get("message"), ask.params.get("messages"))
        if self.asked.setdefault(key, words) != words:
            raise McpError(f"two questions have the key {key!r}; give each a key of its own")


class Rounds:
    """Begins and suspends the rounds of modern requests; their states are sealed with one key."""

    def __init__(
        self, key: bytes, clock: Callable[[], float] = time.time, ttl_s: float = ROUND_TTL_S
    ) -> None:
        if len(key) < KEY_SIZE:
            raise RegistrationError(f"the state key must have at least {KEY_SIZE} bytes")
        self._states = SealedStates(key, clock, ttl_s)

    async def begin(self, request: Request, context: Context) -> tuple[Context, ReplayAsker]:
        """Return the context for one run of a modern handler, with the answers and state so far."""
        if request.meaning is None or not request.meaning.rounds:
            return context.bound(request, None, {}), ReplayAsker(context, {}, {})
        given, kept = await self._opened(request, context)
        bound = context.bound(request, None, kept["state"])
        bound.calls = kept.get("calls", {})
        replay = ReplayAsker(bound, kept["answers"], given)
        bound._asker = replay
        return bound, replay

    async def suspend(
        self, request: Request, context: Context, replay: ReplayAsker, suspended: Suspended
    ) -> dict[str, Any]:
        """Return the `input_required` result: the open questions and the sealed state."""
        kept = {"answers": replay.answers, "state": context.state}
        if context.calls:
            kept["calls"] = context.calls
        try:
            state = await self._states.close(kept, request, context.principal)
        except (TypeError, ValueError) as error:
            raise RuntimeError(f"context.state has no JSON form: {error}") from None
        questions = {key: question_of(ask) for key, ask in suspended.asks.items()}
        return {"resultType": "input_required", "inputRequests": questions, "requestState": state}

    async def _opened(
        self, request: Request, context: Context
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        retry = request.decode_as(_Retry)
        given, sealed = retry.inputResponses, retry.requestState
        if sealed is None:
            return given, {"answers": {}, "state": {}}
        return given, await self._states.open(sealed, request, context.principal)


class _Question(Struct):
    method: str
    params: dict[str, Any] = {}


def check_answer(question: bytes, answer: bytes) -> None:
    """Raise InvalidParams for an answer that does not match its question, both as JSON."""
    asked = decoded(question, _Question)
    if asked is None or asked.method not in _SHAPES:
        return
    given = msgspec.json.decode(answer)
    ask = Ask(asked.method, asked.params, *needed_capability(asked.method, asked.params))
    if not _is_complete(ask, asked.method, given):
        schema = Schema(asked.params.get("requestedSchema", {}))
        why = schema.describe(schema.problems(given.get("content") or {}))
        raise InvalidParams(f"the answer does not match the form: {why}")


def _checked(ask: Ask, answer: Any) -> Any:
    """Return a legacy client's answer; raise AskError if it does not match the question."""
    try:
        is_complete = _is_complete(ask, ask.method, answer)
    except InvalidParams as error:
        raise AskError(f"the client's answer is malformed: {error.message}") from None
    if not is_complete:
        raise AskError("the client's answer does not match the form")
    return answer


def _is_complete(ask: Ask, key: str, answer: Any) -> bool:
    """True if an answer matches the form, if there is one; raise InvalidParams if malformed."""
    try:
        shaped = msgspec.convert(answer, _SHAPES[ask.method])
    except msgspec.ValidationError as error:
        raise InvalidParams(f"the answer to {key}: {error}") from None
    if ask.mode != "form" or not isinstance(shaped, _ElicitAnswer) or shaped.action != "accept":
        return True
    try:
        return not Schema(ask.params.get("requestedSchema", {})).problems(shaped.content or {})
    except RegistrationError:
        return True  # the server's form is not valid, and has no other answer


def _check(ask: Ask, declared: Mapping[str, Any], version: Version) -> None:
    """Raise if the client lacks the capability for a question, or its form is not valid."""
    if ask.capability == "elicitation" and version < Version.V2025_06_18:
        raise MissingCapability(ask.capability)
    if ask.mode in ("url", "tools") and version < Version.V2025_11_25:
        raise MissingCapability(ask.capability, {ask.mode: {}})
    if not declares(declared, ask.capability, ""):
        raise MissingCapability(ask.capability)
    if not declares(declared, ask.capability, ask.mode):
        raise MissingCapability(ask.capability, {ask.mode: {}})
    if ask.mode == "form":
        structural_check(ask.params.get("requestedSchema", {}), where="the form")


def question_of(ask: Ask) -> dict[str, Any]:
    """Return a question as a modern result has it."""
    return {"method": ask.method, "params": _modern_params(ask)}


def _legacy_params(ask: Ask) -> dict[str, Any]:
    if ask.mode == "url" and "elicitationId" not in ask.params:
        return {**ask.params, "elicitationId": os.urandom(16).hex()}
    return ask.params


def _modern_params(ask: Ask) -> dict[str, Any]:
    params = {key: value for key, value in ask.params.items() if key != "elicitationId"}
    if ask.mode == "form":
        params["mode"] = "form"
    return params
