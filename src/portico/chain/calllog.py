"""A line a call, in a file: who called what, how it went, and never with which values."""

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from portico.model.context import Context
from portico.model.message import Request, Response
from portico.protocol.methods import TABLE, Kind

_MOST_KEYS = 20
_MOST_DEPTH = 3
_MOST_WORD = 200
_TYPES = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}


class Inner(Protocol):
    """What is logged."""

    def quick(self, request: Request, context: Context) -> Response | None:
        """The answer if it needs no waiting."""
        ...

    async def handle(self, request: Request, context: Context) -> Response:
        """The answer."""
        ...


class _Line(Struct):
    time: str
    client: str
    server: str
    method: str
    name: str
    outcome: str
    ms: float
    arguments: str


class _Result(Struct):
    isError: bool = False  # noqa: N815  (a field of the wire)


class _Params(Struct):
    arguments: Any = None


class _Info(Struct):
    name: str = ""


class CallLog:
    """Passes everything on, and writes a line for each call that is over."""

    def __init__(self, inner: Inner, path: str, server: str, report: Callable[[str], None]) -> None:
        """`report` is told, once, that the file cannot be written; calls go on. Raises OSError if
        it cannot be opened now."""
        self._inner = inner
        self._path = path
        self._server = server
        self._report = report
        self._failed = False
        self._append(b"")

    def quick(self, request: Request, context: Context) -> Response | None:
        """The answer if it needs no waiting: no call does that."""
        return self._inner.quick(request, context)

    async def handle(self, request: Request, context: Context) -> Response:
        """The answer; a call leaves a line."""
        meaning = TABLE.get((request.method, request.version))
        if meaning is None or meaning.kind is not Kind.CALL:
            return await self._inner.handle(request, context)
        started = time.perf_counter()
        outcome = "cancelled"
        try:
            response = await self._inner.handle(request, context)
            outcome = _outcome(request, response)
        finally:
            self._write(request, context, outcome, time.perf_counter() - started)
        return response

    def _write(self, request: Request, context: Context, outcome: str, took_s: float) -> None:
        now = time.time()
        line = _Line(
            time=f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1e3):03}Z",
            client=_client(request, context)[:_MOST_WORD],
            server=self._server,
            method=request.method,
            name=_name(request)[:_MOST_WORD],
            outcome=outcome,
            ms=round(took_s * 1e3, 1),
            arguments=_arguments(request),
        )
        try:
            self._append(msgspec.json.encode(line) + b"\n")
            self._failed = False
        except OSError as error:
            if not self._failed:
                self._report(f"{self._path} cannot be written: {error.strerror or error}")
            self._failed = True

    def _append(self, data: bytes) -> None:
        # Opened each time, so that the file may be moved away; never waits for a pipe's reader.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(self._path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)


def _outcome(request: Request, response: Response) -> str:
    if response.error:
        return f"error {response.code}"
    if request.method == "tools/call" and b"isError" in response.result:
        try:
            if msgspec.json.decode(response.result, type=_Result).isError:
                return "tool-error"
        except msgspec.DecodeError:
            pass  # whatever it is, it is the client's to read
    return "ok"


def _client(request: Request, context: Context) -> str:
    if request.meta.client_info:
        try:
            return msgspec.json.decode(request.meta.client_info, type=_Info).name
        except msgspec.DecodeError:
            return ""
    info = context.session.client_info if context.session is not None else {}
    return str(info.get("name", ""))


def _name(request: Request) -> str:
    """A tool's or prompt's name, or a URI without what may be secret in it."""
    if not request.uri:
        return request.name
    plain, mark, _ = request.uri.partition("?")
    return f"{plain}?..." if mark else plain


def _arguments(request: Request) -> str:
    try:
        params = msgspec.json.decode(request.params or b"{}", type=_Params)
    except (msgspec.DecodeError, RecursionError):
        return "?"
    return shape(params.arguments) if params.arguments is not None else ""


def shape(value: Any, depth: int = 0) -> str:
    """What a value is made of, such as `{a:str,b:int[3]}`, and nothing of what it is."""
    if isinstance(value, dict):
        if depth >= _MOST_DEPTH:
            return f"object[{len(value)}]"
        fields = [f"{_key(key)}:{shape(of, depth + 1)}" for key, of in _first(value)]
        return f"{{{','.join([*fields, '...'] if len(value) > _MOST_KEYS else fields)}}}"
    if isinstance(value, list):
        kinds = {shape(of, depth + 1) for of in value[:_MOST_KEYS]}
        kind = kinds.pop() if len(kinds) == 1 else "any"
        return f"{kind}[{len(value)}]"
    return _TYPES.get(type(value), "any")


def _first(value: dict[str, Any]) -> list[tuple[str, Any]]:
    return list(value.items())[:_MOST_KEYS]


def _key(key: str) -> str:
    """A name as it is, if it looks like one: who puts data into keys would find it here."""
    return key if len(key) <= 40 and key.replace("-", "_").isidentifier() else "?"
