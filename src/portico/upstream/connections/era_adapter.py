"""Translates a call between the eras, where its client and its upstream differ."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from msgspec import Raw

from portico.core.catalog.attributed_questions import for_session, refused_question
from portico.core.model.errors import (
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    AskError,
    McpError,
    MissingCapability,
    TargetError,
)
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import (
    URL_REQUIRED,
    Sender,
    declares,
    error_code,
    is_input_required,
    legacy_question,
    legacy_result,
    members,
    modern_params,
    url_questions,
    with_code,
)
from portico.core.protocol.tasks import EXTENSION, task_of, with_tasks
from portico.core.state.memory import LARGE
from portico.upstream.connections.caller import Call, Caller
from portico.upstream.connections.session import UpstreamSession
from portico.upstream.rpc.rpc_error import ServerError
from portico.upstream.wires.wire import Data

MAX_ROUNDS = 10

Send = Callable[[bytes, Data], Awaitable[bytes]]
"""Sends a call's request once: id and params in, raw result out."""


def encode_when_sent(call: Call, params: Callable[[], bytes]) -> Data:
    """Return the params for the upstream; large ones are encoded when they are sent."""
    return params if len(call.request.params) > LARGE else params()


async def run_rounds(session: UpstreamSession, call: Call, send: Send) -> bytes:
    """Run a legacy client's call at a modern upstream, sending it the questions in results."""
    sender = _sender(session, call.caller)
    if call.context.task_wish is not None:
        sender = msgspec.structs.replace(sender, capabilities=with_tasks(sender.capabilities))
    added: dict[str, Raw] = {}
    for _ in range(MAX_ROUNDS):
        id = session.exchange.next_id()
        params = partial(_round, call, added, sender, id)
        result = await send(id, encode_when_sent(call, params))
        if call.context.task_wish is not None and task_of(call.request.method, b"", result):
            return result  # not a result yet
        if not is_input_required(result):
            return legacy_result(result)
        added = await _ask_all(session, call, result)
    raise _protocol_error(
        session, f"still requires input after {MAX_ROUNDS} rounds of {call.request.method}"
    )


def _round(call: Call, added: dict[str, Raw], sender: Sender, id: bytes) -> bytes:
    params = call.request.params
    return modern_params(encode(members(params) | added) if added else params, sender, id)


def first_round(params: bytes, session: UpstreamSession, caller: Caller) -> bytes:
    """Return the params of a legacy client's call for a modern upstream, without progress."""
    return modern_params(params, _sender(session, caller), b"")


def _sender(session: UpstreamSession, caller: Caller) -> Sender:
    sender = caller.sender(session.server.version)
    if not sender.level:  # until the client sets one, which it cannot without the capability
        level = "info" if "logging" in session.server.capabilities else "debug"
        sender = msgspec.structs.replace(sender, level=level)
    return sender


def _protocol_error(session: UpstreamSession, why: str) -> TargetError:
    return TargetError(f"{session.name} {why}", kind="protocol", server=session.name)


async def _ask_all(session: UpstreamSession, call: Call, result: bytes) -> dict[str, Raw]:
    fields = members(result)
    questions = members(fields.get("inputRequests", b""))

    async def put(key: str, raw: bytes) -> Raw:
        question = members(raw)
        try:
            method = msgspec.json.decode(question.get("method", b""), type=str)
        except msgspec.DecodeError:
            raise _protocol_error(session, f"sent an invalid question ({key[:40]})") from None
        params = legacy_question(
            method,
            members(question.get("params", b"")),
            call.request.version,
            os.urandom(16).hex(),
        )
        params = for_session(call.caller.session, method, params, session.name)
        try:
            if not session.may_ask:
                raise AskError(refused_question(method, session.name))
            return Raw(await call.ask(method, params))
        except AskError as error:
            if method == "elicitation/create":
                return Raw(b'{"action":"cancel"}')
            raise McpError(str(error), error.code, error.data) from None

    asking = [asyncio.ensure_future(put(key, raw)) for key, raw in questions.items()]
    try:
        answers = await asyncio.gather(*asking)
    finally:
        for one in asking:
            one.cancel()  # after one refusal, the other answers are not needed
    added = {"inputResponses": Raw(encode(dict(zip(questions, answers, strict=True))))}
    if not questions:
        added = {}
    if "requestState" in fields:
        added["requestState"] = fields["requestState"]
    return added


def translate_error(call: Call, error: ServerError) -> bytes:
    """Raise an upstream's error with the code of the client's era, or return the result that
    expresses it in that era."""
    modern = call.request.version.modern
    if modern and error.code == URL_REQUIRED:
        if not declares(call.caller.capabilities, "elicitation", "url"):
            raise MissingCapability("elicitation", {"url": {}})
        questions = url_questions(error.raw)
        if questions:
            return encode({"resultType": "input_required", "inputRequests": questions})
    if not modern and error.code == MISSING_CAPABILITY and EXTENSION.encode() in error.raw:
        why = f"{call.request.name} runs only as a task; send `task` in params"
        raise McpError(why, METHOD_NOT_FOUND)  # as a legacy server reports it (2025-11-25, tasks)
    code = error_code(call.request.method, error.code, modern)
    if code != error.code:
        error.raw, error.code = with_code(error.raw, code), code
    raise error
