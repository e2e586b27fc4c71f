"""The questions of links: each link has its own part of the rounds of a call.

Legacy, and in a task: a question is sent to the client, and the link waits. Modern: a question
without an answer ends the round, and in the next one every link runs again from its start. The
answers and states of all links travel in one sealed state, each under the place of its link; the
state of the server behind them travels in it, byte for byte.
"""

import os
import time
from collections.abc import Awaitable, Mapping
from functools import partial
from hashlib import blake2b
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw, Struct, convert, json, to_builtins
from msgspec.structs import replace

from portico.core.catalog.attributed_questions import signed
from portico.core.model.content import ToolResult
from portico.core.model.context import Ask, Context
from portico.core.model.errors import AskError, McpError, MissingCapability, SessionError
from portico.core.model.message import Request, Response
from portico.core.model.methods import ELICIT, SAMPLE, MethodKind
from portico.core.model.types import Answer, Handler
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import is_input_required, members
from portico.core.protocol.result_fields import identified
from portico.core.state.pending import Pending, after
from portico.core.state.sealed_states import SealedStates
from portico.library.chain.fold import PLACE, LinkPlace, is_waiting
from portico.library.functions.rounds import (
    KEY_SIZE,
    ROUND_TTL_S,
    DirectAsker,
    ReplayAsker,
    Suspended,
    question_of,
)

if TYPE_CHECKING:
    from portico.core.state.client_sessions import SessionValues
    from portico.library.functions.forms import ClassForm

T = TypeVar("T")
PREFIX = "portico-links-1."
"""Begins the states of links: all others belong to the server behind them."""
MAX_ROUNDS = 20
_STATIC = MethodKind.STATIC  # members of an enum are slow to look up
_FIELDS = ("inputResponses", "requestState")


class LinkPart(Struct):
    """The answers and the state of one link."""

    answers: dict[str, Any] = {}
    state: dict[str, Any] = {}


class LinkParts(Struct):
    """The parts of all links of a call, as they are sealed."""

    parts: dict[str, LinkPart] = {}
    asked: str = ""
    """The part that has open questions; empty if they are those of the server behind all links."""
    keys: list[str] = []
    """The open questions."""
    inner: dict[str, str] = {}
    """The state of the server, and answers that it has not got yet, as JSON."""
    round: int = 0
    given: dict[str, Any] = {}
    """The answers to the open questions."""

    def at(self, place: LinkPlace) -> LinkPart:
        """Return the part of a link."""
        return self.parts.setdefault(place.key, LinkPart())


class LinkRounds:
    """Lets the links of one endpoint ask; the asker of the contexts that they get."""

    def __init__(self, key: bytes | None = None) -> None:
        """`key` seals the states of links; replicas share it."""
        self._key = key
        self._sealed: SealedStates | None = None

    @property
    def _states(self) -> SealedStates:
        if self._sealed is None:
            # Another key than that of the server's own states, which are sealed with the same one.
            key = blake2b(self._key or os.urandom(KEY_SIZE), person=b"portico-links").digest()
            self._sealed = SealedStates(key[:KEY_SIZE], time.time, ROUND_TTL_S)
        return self._sealed

    def bind(self, links: Handler) -> Handler:
        """Return the handler that binds the contexts of links."""

        def handle(request: Request, context: Context) -> Answer:
            meaning, params = request.meaning, request.params
            if meaning is not None and meaning.kind is _STATIC:
                return links(request, context)  # lists ask nothing
            context.bind_links(self, request)
            if not request.version.modern or meaning is None or not meaning.rounds:
                answer = links(request, context)
                return _until_over(answer, context) if is_waiting(answer) else answer
            if params.find(b"requestState") >= 0 or params.find(b"\\u") >= 0:
                return self._resumed(links, request, context)
            answer = links(request, context)
            if iscoroutine(answer):
                return self._round(request, context, params, answer)
            if type(answer) is Response or isinstance(answer, Pending):
                return after(answer, partial(self._checked, request, context, params))
            return answer

        return handle

    async def _resumed(self, links: Handler, request: Request, context: Context) -> Response:
        """Continue a call with the answers that its client sends."""
        fields = members(request.params)
        state = decoded(fields.get("requestState", b""), str) or ""
        # In a task the parts are known, and every state is that of the server.
        if context.link_parts is None and context.task is None and state.startswith(PREFIX):
            sealed = state.removeprefix(PREFIX)
            opened = await self._states.open(sealed, request, context.principal)
            context.link_parts = parts = convert(opened, LinkParts)
            answers = members(fields.pop("inputResponses", b""))
            fields.pop("requestState")
            if parts.asked:
                parts.given = {
                    key: json.decode(raw) for key, raw in answers.items() if key in parts.keys
                }
            elif answers:
                parts.inner["inputResponses"] = encode(answers).decode()
            for key, text in parts.inner.items():
                fields[key] = Raw(text.encode())
            request.params = encode(fields)
        params, answer = request.params, links(request, context)
        return await self._round(request, context, params, answer)

    async def _round(
        self, request: Request, context: Context, params: bytes, answer: Awaitable[Response]
    ) -> Response:
        """Await the answer of the links, or the question that ends the round."""
        try:
            response = await answer
        except Suspended as suspended:
            await self._states.load()
            return self._suspended(request, context, params, suspended)
        finally:
            context.is_over = True
        return self._checked(request, context, params, response)

    def _checked(
        self, request: Request, context: Context, params: bytes, response: Response
    ) -> Response:
        """Return the response; if it is the question of a server, its state travels with ours."""
        if type(response) is not Response or context.task is not None:
            return response  # in a task, the parts stay in the context
        result = response.result
        if result.find(b"input_required") < 0:
            return response
        is_ours = context.link_parts is not None or result.find(PREFIX.encode()) >= 0
        if not is_ours or not is_input_required(result):
            return response
        fields = members(result)
        state = fields.get("requestState")
        inner = {} if state is None else {"requestState": bytes(state).decode()}
        parts = replace(context.link_parts or LinkParts(), asked="", keys=[], inner=inner, given={})
        fields["requestState"] = Raw(encode(self._seal(parts, request, context, params)))
        return replace(response, result=encode(fields))

    def _suspended(
        self, request: Request, context: Context, params: bytes, suspended: Suspended
    ) -> Response:
        """Return the questions of a link, and the sealed parts of all of them."""
        parts: LinkParts = context.link_parts
        parts.keys = list(suspended.asks)
        fields = members(params)
        parts.inner = {key: bytes(fields[key]).decode() for key in _FIELDS if key in fields}
        result = {
            "resultType": "input_required",
            "inputRequests": {key: question_of(ask) for key, ask in suspended.asks.items()},
            "requestState": self._seal(parts, request, context, params),
        }
        return Response(id=request.id, result=encode(identified(result, context.server_info)))

    def _seal(self, parts: LinkParts, request: Request, context: Context, params: bytes) -> str:
        if parts.round >= MAX_ROUNDS:
            raise McpError(f"the call still requires input after {MAX_ROUNDS} rounds")
        kept = replace(parts, round=parts.round + 1, given={})
        sent = replace(request, params=params)  # the chain may have changed it
        try:
            return PREFIX + self._states.close_now(to_builtins(kept), sent, context.principal)
        except (TypeError, ValueError) as error:
            raise RuntimeError(f"context.state has no JSON form: {error}") from None

    # The asker of a link's context.

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """Return all answers to the questions of the link that runs now, or end its round."""
        place = PLACE.get()
        if place is None or place.context.is_over:
            raise RuntimeError("cannot ask: the call of this link was answered")
        context, request = place.context, place.request
        task_control = context.task_control
        kept = None if task_control is None else task_control.link_answers
        if task_control is not None and task_control.is_replay:
            return _answered_before(place, asks, (kept or {}).get(place.key, {}))
        asks = {key: _named(ask, place.name) for key, ask in asks.items()}
        try:
            if context.task is not None or not request.version.modern:
                answers = await DirectAsker(context, request.version).ask(asks)
            else:
                answers = await self._replayed(place, asks)
            if kept is not None:
                kept.setdefault(place.key, {}).update(answers)
            return answers
        except MissingCapability as missing:
            if request.version.modern:
                raise
            raise McpError(f"{place.name}: {missing}") from None  # its code is modern-only
        except AskError as error:
            raise McpError(f"{place.name}: {error}") from None

    async def _replayed(self, place: LinkPlace, asks: Mapping[str, Ask]) -> dict[str, Any]:
        context = place.context
        if context.link_parts is None:
            context.link_parts = LinkParts()
        parts = context.link_parts
        part = parts.at(place)
        given = parts.given if parts.asked == place.key else {}
        try:
            return await ReplayAsker(context, part.answers, given, place.asked).ask(asks)
        except Suspended:
            if context.is_reached:
                why = f"the link {place.name!r} sent a question after it had passed the call on"
                raise RuntimeError(f"{why}; ask first: the call would be made again") from None
            parts.asked = place.key
            raise

    def state(self) -> dict[str, Any]:
        """Return the state of the link that runs now."""
        part = self._part()
        return {} if part is None else part.state

    def set_state(self, state: dict[str, Any]) -> None:
        """Replace the state of the link that runs now."""
        part = self._part()
        if part is not None:
            part.state = state

    def values(self, _: Context) -> "SessionValues":
        """Return the values that the link that runs now keeps for the client's session."""
        from portico.core.state.client_sessions import SESSIONS

        place = PLACE.get()
        if place is None:
            raise RuntimeError("context.store: the call of this link was answered")
        try:
            return SESSIONS.of(place.request, place.context, f"link {place.name}")
        except SessionError as error:
            raise McpError(f"{place.name}: {error}") from None

    def _part(self) -> LinkPart | None:
        place = PLACE.get()
        if place is None:
            return None
        if place.context.link_parts is None:
            place.context.link_parts = LinkParts()
        parts: LinkParts = place.context.link_parts
        return parts.at(place)

    def form(self, kind: type[T]) -> "ClassForm[T]":
        """Return the form that a class describes."""
        from portico.library.functions.forms import ClassForm  # slow to load, and seldom needed

        return ClassForm(kind)

    async def call_tool(
        self, context: Context, name: str, arguments: Mapping[str, Any]
    ) -> ToolResult:
        """Refuse it: a link passes a request to the next handler."""
        raise RuntimeError("call_tool is for tools; a link passes request.calling(...) to next")


def _answered_before(
    place: LinkPlace, asks: Mapping[str, Ask], answers: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the answers that a link got when the call was made."""
    if asks.keys() - answers.keys():
        raise McpError(f"{place.name}: cannot ask: the client of this call does not wait for it")
    return {key: answers[key] for key in asks}


async def _until_over(answer: Awaitable[Response], context: Context) -> Response:
    """Await the answer of links that may ask until then."""
    try:
        return await answer
    finally:
        context.is_over = True


def _named(ask: Ask, name: str) -> Ask:
    """Return a question with the name of the link's component: the client only knows the server."""
    params = dict(ask.params)
    if ask.method == ELICIT:
        params["message"] = signed(str(params.get("message", "")), name)
    elif ask.method == SAMPLE:
        prompt = params.get("systemPrompt") or "The component of this name makes this request."
        params["systemPrompt"] = signed(str(prompt), name)
    return replace(ask, params=params)
