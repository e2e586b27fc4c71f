"""The inbound ladder: numbered rungs; the first failure wins; returns a request or a rejection.

Whether the method exists is not a rung: only the terminus of the chain decides that.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from portico.core.model.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
)
from portico.core.model.message import Meta, Request
from portico.core.model.methods import KNOWN, MODERN_ONLY
from portico.core.model.offer import HeaderParam
from portico.core.model.session import LOG_LEVELS
from portico.core.model.version import BY_TEXT, LATEST_LEGACY, MODERN, Version
from portico.core.protocol.codec import (
    Envelope,
    WireMeta,
    WireParams,
    any_params_of,
    is_id,
    params_of,
)
from portico.core.protocol.tasks import MIRRORED as TASK_NAMES
from portico.core.protocol.tasks import task_id

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"

_NO_PARAMS = WireParams()
_NEWEST = MODERN[-1]


class Rejection(Struct, frozen=True):
    """The reason why a message is refused."""

    code: int
    message: str
    data: Any = UNSET
    version: Version = LATEST_LEGACY
    bare: bool = False
    """True for a legacy HTTP failure: a status without a JSON-RPC body."""


def admit(
    envelope: Envelope, assumed: Version | None, headers: Mapping[str, str] | None
) -> Request | Rejection:
    """Determine a message's era and version, and compare it with its headers.

    `assumed` is the version of the session, or of an embedder; None before the handshake.
    Without headers, on stdio, `headers=None`.
    """
    # 1. A JSON-RPC 2.0 request or notification.
    id, method = bytes(envelope.id), envelope.method
    if envelope.jsonrpc != "2.0":
        return Rejection(INVALID_REQUEST, 'jsonrpc must be "2.0"')
    if not method:
        return Rejection(INVALID_REQUEST, "a request needs a method")
    if id and not id.isdigit() and not is_id(id):
        return Rejection(INVALID_REQUEST, "an id must be a string or an integer")

    # 2. Valid params, as far as the next rungs need them.
    params = _NO_PARAMS
    raw = bytes(envelope.params)
    if raw:
        try:
            if method in KNOWN:
                params = params_of(raw)
            else:  # an unknown method may use name or cursor for anything
                params = WireParams(meta=any_params_of(raw).meta)
        except msgspec.DecodeError as error:
            return Rejection(INVALID_PARAMS, f"params of {method}: {error}")
    meta = params.meta
    token = b"" if meta is UNSET else bytes(meta.progress_token)
    if token and token[0] not in b'"-0123456789':
        if token != b"null":
            return Rejection(INVALID_PARAMS, "_meta.progressToken must be a string or a number")
        token = b""  # null is the same as no token

    # 3. The era: from the body, then the header, then the method.
    modern = meta is not UNSET and meta.version is not UNSET
    if not modern:
        modern = method in MODERN_ONLY or (headers is not None and _names_modern(headers))
    request = Request(
        method=method,
        id=id,
        params=raw,
        version=_NEWEST if modern else assumed or LATEST_LEGACY,
        name=params.name,
        uri=params.uri,
        cursor=params.cursor,
    )
    if modern:
        return _modern(request, meta, token, headers)
    if token:
        request.meta = Meta(progress_token=token)
    if assumed is not None and headers is None:
        return request
    return _legacy(request, assumed, headers)


def _names_modern(headers: Mapping[str, str]) -> bool:
    header = headers.get(VERSION_HEADER)
    version = BY_TEXT.get(header) if header is not None else None
    return version is not None and version.modern


def _legacy(
    request: Request, assumed: Version | None, headers: Mapping[str, str] | None
) -> Request | Rejection:
    # 4L. A negotiated version, except for methods allowed before the handshake.
    if request.method == "initialize":
        return request
    if headers is not None and (header := headers.get(VERSION_HEADER)) is not None:
        version = BY_TEXT.get(header)
        if version is None:
            return Rejection(
                INVALID_REQUEST, f"unsupported {VERSION_HEADER}: {header[:40]!r}", bare=True
            )
        if assumed is None:
            request.set_version(version)
    elif assumed is None and request.method != "ping" and request.id:
        return Rejection(
            INVALID_REQUEST,
            f"{request.method} before initialize: send initialize first, or the "
            f"per-request _meta of {_NEWEST.text}",
        )
    return request


def _modern(
    request: Request,
    meta: WireMeta | UnsetType,
    token: bytes,
    headers: Mapping[str, str] | None,
) -> Request | Rejection:
    if not request.id and headers is not None:
        return request  # 2026-07-28 defines no header rules for notifications

    # 4M. The version in the body, which the header must repeat.
    stated = UNSET if meta is UNSET else meta.version
    if headers is not None:
        header = headers.get(VERSION_HEADER)
        if stated is not UNSET and header != stated:
            return _mismatch(VERSION_HEADER, header, stated)
    if meta is UNSET or stated is UNSET:
        if not request.id:
            return request
        return _missing_meta("io.modelcontextprotocol/protocolVersion")

    # 5M. A supported version of this era.
    version = BY_TEXT.get(stated)
    if version is None or not version.modern:
        return Rejection(
            UNSUPPORTED_VERSION,
            f"unsupported protocol version {stated[:40]!r}",
            {"supported": [v.text for v in MODERN], "requested": stated},
            version=_NEWEST,
        )
    if version is not _NEWEST:
        request.set_version(version)

    # 6M. The other metadata.
    if request.id and not meta.client_capabilities:
        return _missing_meta("io.modelcontextprotocol/clientCapabilities")
    if meta.client_capabilities and bytes(meta.client_capabilities)[:1] != b"{":
        return _bad_meta("io.modelcontextprotocol/clientCapabilities must be an object")
    if meta.client_info and bytes(meta.client_info)[:1] != b"{":
        return _bad_meta("io.modelcontextprotocol/clientInfo must be an object")
    if meta.log_level and meta.log_level not in LOG_LEVELS:
        return _bad_meta(f"io.modelcontextprotocol/logLevel must be one of {', '.join(LOG_LEVELS)}")
    request.meta = Meta(
        bytes(meta.client_capabilities), bytes(meta.client_info), meta.log_level, token
    )

    # 7M. The routing headers repeat the body.
    if headers is not None:
        mismatch = _check_headers(request, headers)
        if mismatch is not None:
            return mismatch
    return request


def _check_headers(request: Request, headers: Mapping[str, str]) -> Rejection | None:
    header = headers.get(METHOD_HEADER)
    if header != request.method:
        return _mismatch(METHOD_HEADER, header, request.method)
    meaning = request.meaning
    if meaning is None:
        return _check_task(request, headers)
    if not meaning.mirrored:
        return None
    # A resource without a URI may be read by name; then the header repeats the name.
    body = request.uri or request.name if meaning.mirrored == "uri" else request.name
    header = headers.get(NAME_HEADER)
    if header is None or (decode_header(header) if header[:2] == "=?" else header) != body:
        return _mismatch(NAME_HEADER, header, body)
    return None


def _check_task(request: Request, headers: Mapping[str, str]) -> Rejection | None:
    """Compare `Mcp-Name` with the task id of a request about a task (tasks extension)."""
    header = headers.get(NAME_HEADER)
    if request.method not in TASK_NAMES or header is None:
        return None
    body = task_id(request.params)
    return None if decode_header(header) == body else _mismatch(NAME_HEADER, header, body)


def check_header_params(
    params: tuple[HeaderParam, ...], arguments: Any, headers: Mapping[str, str]
) -> Rejection | None:
    """Compare each `Mcp-Param-*` header with the argument it mirrors."""
    for param in params:
        value = arguments
        for step in param.path:
            value = value.get(step) if isinstance(value, dict) else None
        header = headers.get(param.header)
        if value is None and header is None:
            continue
        if value is None or header is None or not _mirrors(decode_header(header), value):
            return _mismatch(param.header, header, ".".join(param.path))
    return None


def encode_header(value: str) -> str:
    """Encode a value for a header: plain if that is lossless, otherwise in Base64."""
    plain = value.isascii() and value.isprintable() and value == value.strip(" \t")
    if plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{b64encode(value.encode()).decode()}?="


def decode_header(value: str) -> str | None:
    """Decode a header value; return None for an invalid encoding."""
    if not (value.startswith("=?base64?") and value.endswith("?=") and len(value) >= 11):
        return value
    text = value[9:-2]
    try:
        decoded = b64decode(text, validate=True)
        # Only the canonical form, so that a value has only one encoding.
        return decoded.decode() if b64encode(decoded).decode() == text else None
    except (Base64Error, UnicodeDecodeError):
        return None


def header_value(value: Any) -> str | None:
    """Return an argument as a header value; None if its type has no header form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    return None


def _mirrors(header: str | None, value: Any) -> bool:
    if header is None:
        return False
    if header == header_value(value):
        return True
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    from decimal import Decimal, InvalidOperation  # exact, and seldom needed

    try:
        return Decimal(header) == value  # 42.0 and 42 are equal (server validation, note)
    except InvalidOperation:
        return False


def _mismatch(name: str, header: str | None, body: str) -> Rejection:
    state = "is missing" if header is None else f"is {header[:80]!r}"
    return Rejection(
        HEADER_MISMATCH,
        f"header mismatch: {name} {state}, but the body has {body[:80]!r}",
        version=_NEWEST,
    )


def _missing_meta(key: str) -> Rejection:
    return _bad_meta(f"params._meta lacks the required {key}")


def _bad_meta(message: str) -> Rejection:
    return Rejection(INVALID_PARAMS, message, version=_NEWEST)
