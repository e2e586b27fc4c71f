"""Translates messages between a client of one era and a server of the other.

Everything that both eras share stays byte for byte, including unknown fields.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.core.model.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND
from portico.core.model.message import Request
from portico.core.model.methods import ELICIT, SAMPLE
from portico.core.model.session import LOG_LEVELS
from portico.core.model.version import Version
from portico.core.protocol.codec import decoded, encode

IDEMPOTENCY_KEY = "portico/idempotencyKey"
"""In the `_meta` of a task's call: the same key for every attempt at the same work."""
META = "io.modelcontextprotocol/"
VERSION_KEY = f"{META}protocolVersion"
CAPABILITIES_KEY = f"{META}clientCapabilities"
INFO_KEY = f"{META}clientInfo"
LEVEL_KEY = f"{META}logLevel"
SERVER_INFO_KEY = f"{META}serverInfo"
URL_REQUIRED = -32042
"""The error code of 2025-11-25 for "a page must be visited first"."""

_MODERN_KEYS = (VERSION_KEY, CAPABILITIES_KEY, INFO_KEY, LEVEL_KEY)
_CACHEABLE = ("resources/read",)
_SERVER_INFO = encode(SERVER_INFO_KEY)
_ADDED = (b'"_meta"', b'"resultType"', b"\\u")
_MAX_CACHED_META = 1024
_KEYED = b'{"%b":"' % IDEMPOTENCY_KEY.encode()
_KEY_AT = len(_KEYED)
_KEY_END = _KEY_AT + 32
_REST = _KEY_END + 2
MAX_JOINED = 64 * 1024
_members = msgspec.json.Decoder(dict[str, Raw]).decode

Members = dict[str, Raw]


class Sender(Struct, frozen=True):
    """The client behind a request, as the modern era describes it in each request."""

    version: Version
    capabilities: bytes
    info: bytes
    level: str = ""


def members(raw: bytes) -> Members:
    """Return the fields of a JSON object as raw bytes; empty if it is not an object."""
    try:
        return _members(raw or b"{}")
    except msgspec.DecodeError:
        return {}


def same_era_params(request: Request, token: bytes) -> bytes:
    """Return params for a server of the client's own era: only the progress token changes."""
    if not request.meta.progress_token:
        return request.params
    params = members(request.params)
    meta = members(params.get("_meta", b""))
    meta["progressToken"] = Raw(token)
    params["_meta"] = Raw(encode(meta))
    return encode(params)


def modern_params(params: bytes, sender: Sender, token: bytes) -> bytes:
    """Convert a legacy client's params for a modern server, adding the client's metadata."""
    fields = members(params)
    fields.pop("task", None)  # the modern server decides what becomes a task
    meta = members(fields.get("_meta", b""))
    meta[VERSION_KEY] = Raw(encode(sender.version.text))
    meta[INFO_KEY] = Raw(sender.info)
    meta[CAPABILITIES_KEY] = Raw(sender.capabilities)
    if sender.level:
        meta[LEVEL_KEY] = Raw(encode(sender.level))
    _put_token(meta, token)
    fields["_meta"] = Raw(encode(meta))
    return encode(fields)


def with_capabilities(request: Request, capabilities: bytes) -> Request:
    """Return a modern request with other client capabilities."""
    fields = members(request.params)
    meta = members(fields.get("_meta", b""))
    meta[CAPABILITIES_KEY] = Raw(capabilities)
    fields["_meta"] = Raw(encode(meta))
    changed = replace(request.meta, client_capabilities=capabilities)
    return replace(request, params=encode(fields), meta=changed)


def legacy_params(params: bytes, token: bytes) -> bytes:
    """Convert a modern client's params for a legacy server, without modern-only fields."""
    fields = _members(params or b"{}")
    raw = bytes(fields.get("_meta", b""))
    if token or len(raw) > _MAX_CACHED_META:
        meta = _legacy_meta(raw, token)
    elif raw.startswith(_KEYED) and _is_spliced(raw):
        # The key is new in each call, the rest is not: only that is looked up.
        meta = _cached_legacy_meta(b"{" + raw[_REST:])
        meta = raw[:_REST] + meta[1:] if meta else raw[: _REST - 1] + b"}"
    else:
        meta = _cached_legacy_meta(raw)
    for key in ("inputResponses", "requestState", "task"):
        fields.pop(key, None)
    if meta:
        fields["_meta"] = Raw(meta)
    else:
        fields.pop("_meta", None)
    return encode(fields)


def _is_spliced(raw: bytes) -> bool:
    """True if Portico put the key in front of a client's metadata."""
    is_key = raw[_KEY_AT:_KEY_END].isalnum() and raw[_KEY_END:_REST] == b'",'
    return is_key and raw.find(_KEYED[1:], _REST) < 0


def _legacy_meta(raw: bytes, token: bytes) -> bytes:
    meta = members(raw)
    for key in _MODERN_KEYS:
        meta.pop(key, None)
    _put_token(meta, token)
    return encode(meta) if meta else b""


@lru_cache(256)
def _cached_legacy_meta(raw: bytes) -> bytes:
    """Return the same from a cache: a client sends the same metadata in every request."""
    return _legacy_meta(raw, b"")


def _put_token(meta: Members, token: bytes) -> None:
    if token and "progressToken" in meta:
        meta["progressToken"] = Raw(token)
    else:
        meta.pop("progressToken", None)


def modern_result(method: str, result: bytes, server_info: bytes) -> bytes:
    """Convert a legacy server's result for a modern client."""
    is_plain = len(result) <= MAX_JOINED and result[:2] == b'{"' and result[-1:] == b"}"
    # Joining is only safe if no field, escaped or not, is one that the modern era adds.
    if is_plain and method not in _CACHEABLE and not any(map(result.count, _ADDED)):
        meta_field = b',"_meta":{%b:%b}' % (_SERVER_INFO, server_info) if server_info else b""
        return b'{"resultType":"complete",%b%b}' % (result[1:-1], meta_field)
    fields = members(result)
    converted: Members = {"resultType": Raw(b'"complete"')} | fields
    if method in _CACHEABLE:
        converted.setdefault("ttlMs", Raw(b"0"))
        converted.setdefault("cacheScope", Raw(b'"private"'))
    if server_info:
        meta = members(fields.get("_meta", b""))
        meta.setdefault(SERVER_INFO_KEY, Raw(server_info))
        converted["_meta"] = Raw(encode(meta))
    return encode(converted)


def legacy_result(result: bytes) -> bytes:
    """Convert a modern server's result for a legacy client."""
    fields = members(result)
    for key in ("resultType", "ttlMs", "cacheScope"):
        fields.pop(key, None)
    meta = members(fields.get("_meta", b""))
    if meta.pop(SERVER_INFO_KEY, None) is not None:
        if meta:
            fields["_meta"] = Raw(encode(meta))
        else:
            del fields["_meta"]
    return encode(fields)


def error_code(method: str, code: int, modern: bool) -> int:
    """Return the error code of the other era: a missing resource has two."""
    if modern and code == RESOURCE_NOT_FOUND:
        return INVALID_PARAMS
    if not modern and code == INVALID_PARAMS and method == "resources/read":
        return RESOURCE_NOT_FOUND
    return code


def with_code(error: bytes, code: int) -> bytes:
    """Return the error with another code."""
    return encode({**members(error), "code": code})


class _ResultType(Struct):
    resultType: str = ""  # noqa: N815  (a field of the wire)
    status: str = ""


def is_input_required(result: bytes) -> bool:
    """True if a modern server's result is a readable question."""
    found = decoded(result, _ResultType)
    return found is not None and found.resultType == "input_required"


def asks_in_task(method: str, result: bytes) -> bool:
    """True if a modern server's answer about one of its tasks has questions."""
    found = decoded(result, _ResultType) if method == "tasks/get" else None
    return found is not None and found.status == "input_required"


class _UrlData(Struct):
    elicitations: list[dict[str, Any]] = []


class _UrlError(Struct):
    data: _UrlData


def url_questions(error: bytes) -> dict[str, dict[str, Any]]:
    """Convert a "page must be visited first" error to questions for a modern client; empty if it
    cannot be decoded."""
    found = decoded(error, _UrlError)
    return {
        str(item.get("elicitationId") or number): {
            "method": ELICIT,
            "params": modern_question(ELICIT, item),
        }
        for number, item in enumerate(found.data.elicitations if found else ())
    }


def modern_question(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a legacy server's question for a modern client, which gets it inside a result."""
    kept = {key: value for key, value in params.items() if key not in ("elicitationId", "task")}
    if method == ELICIT:
        kept.setdefault("mode", "form")
    return kept


def legacy_question(method: str, params: Members, version: Version, id: str) -> bytes:
    """Convert a modern server's question for a legacy client, which gets it as a request."""
    fields = dict(params)
    if method == ELICIT:
        mode = bytes(fields.get("mode", b'"form"'))
        if mode == b'"url"':
            fields.setdefault("elicitationId", Raw(encode(id)))
        elif version < Version.V2025_11_25:
            fields.pop("mode", None)
    return encode(fields)


def needed_capability(method: str, params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the capability, and its part, that a client must declare to get this question."""
    if method == ELICIT:
        return "elicitation", str(params.get("mode", "form"))
    if method == SAMPLE:
        return "sampling", "tools" if "tools" in params else ""
    return ("roots", "") if method == "roots/list" else ("", "")


def declares(capabilities: Mapping[str, Any], capability: str, part: str) -> bool:
    """True if a client declared this capability and part."""
    declared = capabilities.get(capability)
    if not isinstance(declared, dict):
        return False
    # `elicitation: {}` of older clients means forms; other parts must be declared.
    return not part or part in declared or (part == "form" and not declared)


def is_level_enabled(level: str, threshold: str) -> bool:
    """True if a log message of this level passes the threshold; unknown levels always do."""
    if level not in LOG_LEVELS or threshold not in LOG_LEVELS:
        return True
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(threshold)
