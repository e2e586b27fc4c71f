"""Questions to the client, in either era, behind the same calls.

Legacy: each question is a request to the client, and the handler waits. Modern: a question that
is not answered yet ends the round with `input_required`; the handler runs again with the answers
once the client retries (multi round-trip requests).
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from portico.definitions.schema import Schema, structural_check
from portico.model.context import Ask, Context
from portico.model.errors import AskError, InvalidParams, MissingCapability, RegistrationError
from portico.model.message import Request
from portico.model.version import Version
from portico.protocol.codec import encode
from portico.protocol.eras import declares
from portico.providers.handler_exceptions import leaves

if TYPE_CHECKING:
    from portico.protocol.seal import Seal
    from portico.providers.forms import ClassForm

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
    """What a retry brings along; a first request has neither."""

    inputResponses: dict[str, Any] = {}  # noqa: N815  (fields of the wire)
    requestState: str | None = None  # noqa: N815


class Suspended(BaseException):
    """Ends a round: the client has to answer these first. Not an Exception, so that a handler's
    own `except Exception` cannot swallow it."""

    def __init__(self, asks: Mapping[str, Ask]) -> None:
        super().__init__("the client has to answer first")
        self.asks = asks


def suspended_in(group: BaseExceptionGroup) -> Suspended | None:
    """The end of a round out of a task group that it passed through, all questions as one; None
    if something failed in there, too."""
    rounds, failures = group.split(Suspended)
    if rounds is None or failures is not None:
        return None
    asks: dict[str, Ask] = {}
    for error in leaves(rounds):
        asks |= error.asks if isinstance(error, Suspended) else {}
    return Suspended(asks)


class _Asking(Struct):
    """The part of asking that is the same in both eras."""

    def form(self, kind: type[T]) -> "ClassForm[T]":
        """The form that a class describes."""
        from portico.providers.forms import ClassForm  # slow to load, and seldom needed

        return ClassForm(kind)


class DirectAsker(_Asking):
    """Asks a legacy client by requests of our own."""

    _context: Context
    _version: Version

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """All answers, asked for at the same time."""
        if not asks:
            return {}
        peer = self._context.peer
        for ask in asks.values():
            _check(ask, self._context.client_capabilities, self._version)
            if peer is None:
                raise MissingCapability(ask.capability)
        assert peer is not None
        asking = [
            asyncio.ensure_future(peer.ask(ask.method, encode(_legacy_params(ask))))
            for ask in asks.values()
        ]
        try:
            answers = await asyncio.gather(*asking)
        finally:
            for question in asking:
                question.cancel()
            await asyncio.wait(asking)  # those that are still open are taken back
        return {
            key: _checked(ask, msgspec.json.decode(answer))
            for (key, ask), answer in zip(asks.items(), answers, strict=True)
        }


class ReplayAsker(_Asking):
    """Answers a modern handler from what the client has sent so far."""

    _context: Context
    answers: dict[str, Any]
    """Those used so far; they travel on to the next round."""
    _given: dict[str, Any]

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """All answers, or Suspended with the questions that are still open."""
        missing: dict[str, Ask] = {}
        for key, ask in asks.items():
            if key in self.answers:
                continue
            if key in self._given and _answers(ask, key, self._given[key]):
                self.answers[key] = self._given[key]
                continue
            _check(ask, self._context.client_capabilities, Version.V2026_07_28)
            missing[key] = ask
        if missing:
            raise Suspended(missing)
        return {key: self.answers[key] for key in asks}


class Rounds:
    """Opens and closes the rounds of modern requests, sealed with one key."""

    def __init__(
        self, key: bytes, clock: Callable[[], float] = time.time, ttl_s: float = ROUND_TTL_S
    ) -> None:
        if len(key) < KEY_SIZE:
            raise RegistrationError(f"a state key needs at least {KEY_SIZE} bytes")
        self._key = key
        self._clock = clock
        self._ttl_s = ttl_s

    @cached_property
    def _seal(self) -> "Seal":
        # Made when first needed: most servers never ask, and hashing is slow to import.
        from portico.protocol.seal import Seal

        return Seal(self._key)

    def begin(self, request: Request, context: Context) -> tuple[Context, ReplayAsker]:
        """The context for this run of a modern handler, with what earlier rounds brought."""
        if request.meaning is None or not request.meaning.rounds:
            return context.bound(request, None, {}), ReplayAsker(context, {}, {})
        given, kept = self._opened(request, context)
        bound = context.bound(request, None, kept["state"])
        replay = ReplayAsker(bound, kept["answers"], given)
        bound._asker = replay
        return bound, replay

    def suspend(
        self, request: Request, context: Context, replay: ReplayAsker, suspended: Suspended
    ) -> dict[str, Any]:
        """The `input_required` result that asks what is open and seals what is known."""
        from portico.protocol.seal import NONCE_SIZE, binding

        kept = {"answers": replay.answers, "state": context.state}
        try:
            state = self._seal.close(
                kept,
                binding=binding(request, context.principal),
                expires=self._clock() + self._ttl_s,
                nonce=os.urandom(NONCE_SIZE),
            )
        except (TypeError, ValueError) as error:
            raise RuntimeError(f"context.state has no JSON form: {error}") from None
        asks = {
            key: {"method": ask.method, "params": _modern_params(ask)}
            for key, ask in suspended.asks.items()
        }
        return {"resultType": "input_required", "inputRequests": asks, "requestState": state}

    def _opened(self, request: Request, context: Context) -> tuple[dict[str, Any], dict[str, Any]]:
        retry = request.decode_as(_Retry)
        given, sealed = retry.inputResponses, retry.requestState
        if sealed is None:
            return given, {"answers": {}, "state": {}}
        from portico.protocol.seal import SealBroken, binding

        try:
            kept: dict[str, Any] = self._seal.open(
                sealed, binding=binding(request, context.principal), now=self._clock()
            )
        except SealBroken as broken:
            raise InvalidParams(f"requestState is not valid: {broken}; start over") from None
        return given, kept


def _checked(ask: Ask, answer: Any) -> Any:
    """A legacy client's answer, if it is one to what was asked."""
    try:
        filled_in = _answers(ask, ask.method, answer)
    except InvalidParams as error:
        raise AskError(f"the client's answer is malformed: {error.message}") from None
    if not filled_in:
        raise AskError("the client's answer does not fill in the form")
    return answer


def _answers(ask: Ask, key: str, answer: Any) -> bool:
    """True for a full answer; one that lacks something is asked again, a malformed one refused."""
    try:
        shaped = msgspec.convert(answer, _SHAPES[ask.method])
    except msgspec.ValidationError as error:
        raise InvalidParams(f"the answer to {key}: {error}") from None
    if ask.mode != "form" or not isinstance(shaped, _ElicitAnswer) or shaped.action != "accept":
        return True
    return not Schema(ask.params["requestedSchema"]).problems(shaped.content or {})


def _check(ask: Ask, declared: Mapping[str, Any], version: Version) -> None:
    """Raise if it cannot be asked: the client cannot be, or the form is none."""
    if ask.capability == "elicitation" and version < Version.V2025_06_18:
        raise MissingCapability(ask.capability)
    if ask.mode in ("url", "tools") and version < Version.V2025_11_25:
        raise MissingCapability(ask.capability, {ask.mode: {}})
    if not declares(declared, ask.capability, ""):
        raise MissingCapability(ask.capability)
    if not declares(declared, ask.capability, ask.mode):
        raise MissingCapability(ask.capability, {ask.mode: {}})
    if ask.mode == "form":
        structural_check(ask.params["requestedSchema"], where="the form")


def _legacy_params(ask: Ask) -> dict[str, Any]:
    if ask.mode == "url" and "elicitationId" not in ask.params:
        return {**ask.params, "elicitationId": os.urandom(16).hex()}
    return ask.params


def _modern_params(ask: Ask) -> dict[str, Any]:
    params = {key: value for key, value in ask.params.items() if key != "elicitationId"}
    if ask.mode == "form":
        params["mode"] = "form"
    return params
