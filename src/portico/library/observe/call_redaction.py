"""The details of a call that a log may contain: names, shapes and the outcome, never a value."""

import re
import time
from functools import cache, lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.model.message import Meta
from portico.core.model.session import Session

MAX_WORD = 200
_MAX_URI = 10 * MAX_WORD
_MAX_KEYS = 20
_MAX_KEY = 40
_MAX_DEPTH = 3
_TYPES = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}
# Plain and escaped: a URI may contain another one, as Portico's own do.
_USER = re.compile(r"(?i)(?<=://)[^/?#]+(?=@)|(?<=%3A%2F%2F)(?:(?!%2F|%3F|%23).)+(?=%40)")
_REST = re.compile(r"(?is)(\?|#|%3F|%23).*")


class _Params(Struct, frozen=True):
    arguments: Any = None


class _Info(Struct):
    name: str = ""


_read_params = msgspec.json.Decoder(_Params).decode
_read_info = msgspec.json.Decoder(_Info).decode


def timestamp(now: float) -> str:
    """Format a time for the log, in UTC."""
    second = int(now)
    return _second(second) + _thousandths()[int((now - second) * 1e3)]


@lru_cache(maxsize=2)
def _second(now: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))


@cache
def _thousandths() -> tuple[str, ...]:
    return tuple(f".{number:03}Z" for number in range(1000))


def client_name(meta: Meta, session: Session | None) -> str:
    """Return the client's name: of its window, from a modern request or from its handshake."""
    if session is not None and session.client_name:
        return session.client_name[:MAX_WORD]
    if meta.client_info:
        try:
            return _read_info(meta.client_info).name[:MAX_WORD]
        except msgspec.DecodeError:
            return ""
    info = session.client_info if session is not None else {}
    return str(info.get("name", ""))[:MAX_WORD]


def redact_uri(uri: str) -> str:
    """Return a URI without its credentials, query and fragment."""
    return _REST.sub(r"\1...", _USER.sub("***", uri[:_MAX_URI]))


def argument_shape(params: bytes) -> str:
    """Return the shape of a call's arguments."""
    try:
        given = _read_params(params or b"{}").arguments
    except (msgspec.DecodeError, RecursionError):
        return "?"
    return shape(given) if given is not None else ""


def shape(value: Any, depth: int = 0) -> str:
    """Return the types in a value, such as `{a:str,b:int[3]}`, without any of its content."""
    if isinstance(value, dict):
        if depth >= _MAX_DEPTH:
            return f"object[{len(value)}]"
        few = len(value) <= _MAX_KEYS
        fields = [
            f"{_key(key) if len(key) <= _MAX_KEY else '?'}:"
            f"{_TYPES.get(type(of)) or shape(of, depth + 1)}"
            for key, of in (value.items() if few else list(value.items())[:_MAX_KEYS])
        ]
        return f"{{{','.join(fields)}}}" if few else f"{{{','.join(fields)},...}}"
    if isinstance(value, list):
        kinds = {shape(of, depth + 1) for of in value[:_MAX_KEYS]}
        kind = kinds.pop() if len(kinds) == 1 else "any"
        return f"{kind}[{len(value)}]"
    return _TYPES.get(type(value), "any")


@lru_cache(maxsize=256)
def _key(key: str) -> str:
    """Return a key that looks like a name, else `?`: some programs put data into keys."""
    return key if key.replace("-", "_").isidentifier() else "?"
