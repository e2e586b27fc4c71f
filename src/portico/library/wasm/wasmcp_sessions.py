"""The sessions of wasmcp's interfaces: values of the client's session, and questions to the client.

A session can be opened only by the id that the call has. Values keep their type, so they are one
record each: `portico:mcp/session` reads the same keys as objects with `tag` and `value`.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec
from wasmtime.component import ResourceHost

from portico.core.config.component_grants import ComponentGrants
from portico.core.model.methods import ELICIT
from portico.library.wasm.call_client import CallClient
from portico.library.wasm.client_functions import outside
from portico.library.wasm.client_stream import WasiHandles
from portico.library.wasm.failures import Refused
from portico.library.wasm.host_interfaces import FUTURE, SESSION
from portico.library.wasm.running_call import current_call
from portico.library.wasm.wasmcp_context import STORE, session_now
from portico.library.wasm.wasmcp_typed import typed
from portico.library.wasm.wasmcp_values import Record, field_name
from portico.library.wit.raw_host import Typed
from portico.library.wit.wit_types import Shape, WitFunction
from portico.library.wit.wit_values import Handle

_TYPES = {"string-schema": "string", "number-schema": "number", "boolean-schema": "boolean"}


def question_of(request: Record) -> dict[str, Any]:
    """Return the params of an elicitation; raises Refused."""
    if "tag" in request:  # since 2025-11-25
        if request["tag"] != "form":
            raise Refused("a component cannot send a person to a URL; ask with a form")
        request = request["value"]
    schema = request["requested-schema"]
    fields = {name: _field(one) for name, one in schema["properties"]}
    form: dict[str, Any] = {"type": "object", "properties": fields}
    if schema["required"] is not None:
        form["required"] = schema["required"]
    return {"message": request["message"], "requestedSchema": form}


def _field(variant: Record) -> dict[str, Any]:
    tag, value = variant["tag"], variant["value"]
    if tag == "enum-schema":
        return _choice(value)
    return {"type": _TYPES[tag], **_given(value)}


def _choice(value: Record) -> dict[str, Any]:
    """Return a field with choices: one list until 2025-06-18, four kinds of them since."""
    tag, value = (value["tag"], value["value"]) if "tag" in value else ("", value)
    given = _given(value)
    if "oneOf" in given:
        choices = [{"const": one["const-value"], "title": one["title"]} for one in given["oneOf"]]
        given["oneOf"] = choices
    if not tag.endswith("multi-select"):
        return {"type": "string", **given}
    items: dict[str, Any] = {}
    if "oneOf" in given:
        items["anyOf"] = given.pop("oneOf")
    if "enum" in given:
        items = {"type": "string", "enum": given.pop("enum")}
    return {"type": "array", "items": items, **given}


def _given(record: Record) -> dict[str, Any]:
    return {field_name(name): value for name, value in record.items() if value is not None}


def answer_of(shape: Shape, answer: Any) -> Any:
    """Return the client's answer as an `elicit-result`; raises Untyped."""
    fields = dict(answer)
    content = fields.pop("content", None)
    made = typed(shape, fields)
    if isinstance(content, dict):
        made["content"] = [[name, _content(shape, one)] for name, one in content.items()]
    return made


def _content(shape: Shape, value: Any) -> Any:
    part = shape.parts[shape.names.index("content")]  # option<list<tuple<string, variant>>>
    pairs = part.parts[0] if part is not None else None
    pair = pairs.parts[0] if pairs is not None else None
    variant = pair.parts[1] if pair is not None else None
    assert variant is not None
    return typed(variant, value)


_Function = Callable[[WitFunction], Callable[..., Any]]


def session_functions(
    interface: str, granted: ComponentGrants, handles: WasiHandles
) -> Mapping[tuple[str, str], Typed]:
    """Return the functions of one version's `sessions`, by interface and name."""
    made: Mapping[str, _Function] = {
        "[static]session.open": lambda _: _open,
        "[method]session.id": lambda _: lambda store, session: session_now(),
        "[method]session.get": lambda _: lambda store, session, key: _done(_get, key),
        "[method]session.set": lambda _: lambda store, session, *given: _done(_set, *given),
        "[method]session.terminate": lambda _: lambda store, session, reason: _done(_clear),
        "[method]session.elicit": lambda _: _eliciting(granted.elicit),
        "[method]future-elicit-result.subscribe": lambda _: (
            lambda store, future: handles.pollable(store)
        ),
        "[method]future-elicit-result.elicit-result": _answering,
    }
    return {(interface, name): Typed(function) for name, function in made.items()}


def _open(store: Any, session_id: str, store_id: str) -> dict[str, Any]:
    if not session_id or session_id != session_now() or store_id != STORE:
        return {"err": {"tag": "no-such-session"}}
    return {"ok": _handle(store, 1, SESSION)}


def _handle(store: Any, number: int, kind: int) -> Handle:
    return Handle(ResourceHost.own(number, kind).to_any(store))


def _done(work: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> dict[str, Any]:
    try:
        return {"ok": outside(lambda client: work(_values(client), *given))}
    except Refused as error:
        return {"err": {"tag": "store", "value": str(error)}}


def _values(client: CallClient) -> Any:
    if client.values is None:
        raise Refused("the client of this call has no session")
    return client.values


async def _get(values: Any, key: str) -> Any:
    return await values.get(key)


async def _set(values: Any, key: str, value: Any) -> None:
    await values.set(key, value)


async def _clear(values: Any) -> None:
    await values.clear()


def _eliciting(is_granted: bool) -> Callable[..., Any]:
    def elicit(store: Any, session: object, stream: object, request: Any) -> dict[str, Any]:
        try:
            if not is_granted:
                raise Refused("elicit is not granted")
            params = question_of(request)
            text = outside(lambda client: client.ask(ELICIT, params))
        except Refused as error:
            return {"err": {"tag": "unexpected", "value": str(error)}}
        answers = current_call().results
        answers.append(msgspec.json.decode(text))
        return {"ok": _handle(store, len(answers), FUTURE)}

    return elicit


def _answering(signature: WitFunction) -> Callable[..., Any]:
    assert signature.result is not None
    shape = signature.result

    def answer(store: Any, future: Handle) -> Any:
        return answer_of(shape, current_call().results[future.number(store) - 1])

    return answer
