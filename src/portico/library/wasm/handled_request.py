"""One request on its way through middleware with typed interfaces.

Types lose what they have no field for. So a request, a response, or an item of a list that the
middleware passes on as it got it, is the original one, byte for byte.
"""

from typing import Any

import msgspec
from msgspec import Raw

from portico.core.model.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import members
from portico.library.wasm import wasmcp_values as values
from portico.library.wasm.guest import GuestError
from portico.library.wasm.wasmcp import FUNCTIONS
from portico.library.wasm.wasmcp_typed import Untyped, case_of, typed
from portico.library.wit.wit_types import Shape

_PARAMS = frozenset({"name", "arguments", "cursor", "uri", "ref", "argument", "context"})
"""Params that the types have; others stay with the request."""
_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resource-templates",
    "prompts/list": "prompts",
}
_CODES = {
    -32700: "parse-error",
    -32600: "invalid-request",
    METHOD_NOT_FOUND: "method-not-found",
    INVALID_PARAMS: "invalid-params",
    INTERNAL_ERROR: "internal-error",
}
METHODS = {method.replace("/", "-"): method for method in FUNCTIONS}
"""By the case of a typed request."""


class PassedBy(Exception):
    """A result that no type has: a question to the client, or a task. It ends the guest's call."""

    def __init__(self, response: str) -> None:
        super().__init__(response)
        self.response = response


def is_typed(method: str) -> bool:
    """True for a method that wasmcp has types for."""
    return method in FUNCTIONS


class HandledRequest:
    """A request as it was, and the results that came back while it was handled."""

    def __init__(self, method: str, text: str) -> None:
        fields = members(text.encode())
        self._text = text
        self._id = bytes(fields["id"])
        self._method = method
        self._params = members(fields.get("params", b""))
        params = {name: msgspec.json.decode(raw) for name, raw in self._params.items()}
        tag = method.replace("/", "-")
        self.request: values.Record = {"tag": tag, "value": FUNCTIONS[method].request(params)}
        self._originals: dict[bytes, bytes] = {}
        """By their typed form: results, errors and items as they were."""

    @property
    def id(self) -> dict[str, Any]:
        """The id as wasmcp has it."""
        id = msgspec.json.decode(self._id)
        if type(id) is int and -(2**63) <= id < 2**63:
            return {"tag": "number", "value": id}
        return {"tag": "string", "value": id if isinstance(id, str) else self._id.decode()}

    def sent(self, request: Any) -> tuple[str, str]:
        """Return the method and the text of a request that the guest passes on; raises
        GuestError."""
        method = METHODS.get(request["tag"], "")
        if not method:
            what = f"{request['tag']} cannot be passed on"
            raise GuestError(what, METHOD_NOT_FOUND)
        if request == self.request:
            return method, self._text
        own = {} if method == self._method else {"_meta"}
        kept = {
            name: raw
            for name, raw in self._params.items()
            if (name in own if own else name not in _PARAMS)
        }
        params = {**_params(method, request["value"]), **kept}
        text = encode({"jsonrpc": "2.0", "id": Raw(self._id), "method": method, "params": params})
        return method, text.decode()

    def received(self, method: str, text: str, results: Shape) -> dict[str, Any]:
        """Return the response of the rest of the chain for the guest; raises PassedBy."""
        fields = members(text.encode())
        if "error" in fields:
            return {"err": self._error(bytes(fields["error"]))}
        raw = bytes(fields["result"])
        tag = method.replace("/", "-")
        shape = case_of(results, tag)
        assert shape is not None
        found = members(raw)
        try:
            result = typed(shape, _flat(method, msgspec.json.decode(raw)))
        except Untyped as error:
            kind = decoded(found.get("resultType", b""), str) or "complete"
            if kind == "complete" and "task" not in found:
                why = f"the result of {method} has {error}, which its types cannot express"
                return {"err": typed_error(GuestError(why))}
            raise PassedBy(text) from None
        self._originals[encode({"tag": tag, "value": result})] = raw
        field = _LISTS.get(method)
        if field is not None:
            items = msgspec.json.decode(found[values.field_name(field)], type=list[Raw])
            for item, original in zip(result[field], items, strict=True):
                self._originals[encode(item)] = bytes(original)
        return {"ok": {"tag": tag, "value": result}}

    def _error(self, raw: bytes) -> dict[str, Any]:
        fields = members(raw)
        code = msgspec.json.decode(fields.get("code", b"0"))
        message = msgspec.json.decode(fields.get("message", b'""'))
        error = typed_error(GuestError(str(message), int(code)))
        error["value"]["data"] = bytes(fields["data"]).decode() if "data" in fields else None
        self._originals[encode(error)] = raw
        return error

    def answered(self, outcome: Any) -> str:
        """Return the whole response for what the guest returned; raises GuestError."""
        if outcome is None:
            raise GuestError("returned no result for a request")
        if "err" in outcome:
            error = {**outcome["err"], "value": dict(outcome["err"]["value"])}
            error["value"].pop("id", None)
            original = self._originals.get(encode(error))
            if original is None:
                raise values.error_of(outcome["err"])
            return self._response("error", original)
        result = outcome["ok"]
        if METHODS.get(result["tag"]) != self._method:
            raise GuestError(f"answered {self._method} with a result of {result['tag']}")
        original = self._originals.get(encode(result))
        return self._response("result", original or self._changed(result["value"]))

    def _changed(self, record: dict[str, Any]) -> bytes:
        """Return a result that the guest made, with the items that it did not."""
        field = _LISTS.get(self._method)
        if field is None:
            return encode(FUNCTIONS[self._method].result(record))
        found = values.plain({**record, field: None})
        found[values.field_name(field)] = [
            values.plain(item) if (raw := self._originals.get(encode(item))) is None else Raw(raw)
            for item in record[field]
        ]
        return encode(found)

    def _response(self, name: str, raw: bytes) -> str:
        return (b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (self._id, name.encode(), raw)).decode()


def typed_error(error: GuestError) -> dict[str, Any]:
    """Return an error as wasmcp has it."""
    tag = _CODES.get(error.code, "mcp")
    if tag == "mcp" and -32099 <= error.code <= -32000:
        tag = "server"
    data = None if error.data is None else encode(error.data).decode()
    return {"tag": tag, "value": {"code": error.code, "message": error.message, "data": data}}


def _flat(method: str, result: Any) -> Any:
    """Return a result with the fields of a completion beside its metadata, as wasmcp has it."""
    if method != "completion/complete" or not isinstance(result, dict):
        return result
    return {**(result.get("completion") or {}), "_meta": result.get("_meta")}


def _params(method: str, record: values.Record) -> dict[str, Any]:
    """Return the params of a request that the guest made; raises GuestError."""
    found = {name: value for name, value in record.items() if value is not None}
    if method == "completion/complete":
        found["ref"] = _reference(record["ref"])
        if "context" in found:
            found["context"] = _with_arguments(found["context"])
    return _with_arguments(found)


def _reference(ref: values.Record) -> dict[str, Any]:
    if ref["tag"] == "resource-template":
        return {"type": "ref/resource", "uri": ref["value"]}
    return {"type": "ref/prompt", **values.plain(ref["value"])}


def _with_arguments(record: values.Record) -> dict[str, Any]:
    found = {name: value for name, value in record.items() if value is not None}
    if "arguments" in found:
        try:
            found["arguments"] = msgspec.json.decode(found["arguments"])
        except msgspec.DecodeError as error:
            why = f"passed on arguments that are not JSON: {error}"
            raise GuestError(why, INVALID_PARAMS) from None
    return found
