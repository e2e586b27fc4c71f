"""One JSON-RPC message, decoded only as far as needed: ids, params and results stay raw bytes."""

from collections.abc import Generator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from portico.model.errors import InvalidParams
from portico.model.methods import TABLE, MethodKind, MethodMeaning
from portico.model.version import LATEST_LEGACY, Version

T = TypeVar("T")


class Meta(Struct, frozen=True, gc=False):
    """What a modern request says of its sender, and any request of its progress."""

    client_capabilities: bytes = b""
    client_info: bytes = b""
    log_level: str = ""
    progress_token: bytes = b""


NO_META = Meta()
_STATIC = MethodKind.STATIC  # members of an enum are slow to look up


class Request(Struct, kw_only=True, gc=False):
    """A request or notification on its way through the chain."""

    method: str
    id: bytes = b""
    """The raw JSON of the id; empty for a notification."""
    params: bytes = b""
    """The raw JSON object; empty if none was sent."""
    version: Version = LATEST_LEGACY
    meta: Meta = NO_META
    name: str = ""
    """`params.name`, where the method has one."""
    uri: str = ""
    """`params.uri`, where the method has one."""
    cursor: str = ""
    timeout_s: float = 0.0
    """How long this call may take; 0 for as long as its upstream allows."""
    asked: str = ""
    """The meta-tool by which a client calls this one: `execute_tool`, or itself."""
    arguments: dict[str, Any] | None = None
    """The arguments of a call that were checked already."""
    meaning: MethodMeaning | None = None
    """What the method means at this version; None for a method that the version does not have."""

    def __post_init__(self) -> None:
        self.meaning = TABLE.get((self.method, self.version))

    def set_version(self, version: Version) -> None:
        """Take this for a request of another version."""
        if version is not self.version:
            self.version = version
            self.meaning = TABLE.get((self.method, version))

    @property
    def is_static(self) -> bool:
        """True if the catalog's ready bytes answer it."""
        meaning = self.meaning
        return meaning is not None and meaning.kind is _STATIC

    def decode(self) -> dict[str, Any]:
        """The params as plain Python objects."""
        if not self.params:
            return {}
        params: dict[str, Any] = msgspec.json.decode(self.params, type=dict[str, Any])
        return params

    def decode_as(self, type: type[T]) -> T:
        """The params as a type, or InvalidParams that names the field."""
        try:
            return msgspec.json.decode(self.params or b"{}", type=type)
        except msgspec.DecodeError as error:
            raise InvalidParams(f"params of {self.method}: {error}") from None


class Response(Struct, kw_only=True, frozen=True, gc=False):
    """One answer: a result, an error, or nothing at all (for a notification)."""

    id: bytes = b""
    result: bytes = b""
    """The raw JSON of the result; the very bytes object the catalog holds where it is static."""
    error: bytes = b""
    """The raw JSON of the error object."""
    code: int = 0
    """The error's code, so that a transport need not decode it to choose its status."""

    def __await__(self) -> Generator[Any, None, "Response"]:
        """Itself, so that every answer of a handler can be awaited."""
        yield from ()
        return self

    @property
    def is_nothing(self) -> bool:
        """True if there is nothing to send."""
        return not self.result and not self.error

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The message in pieces; only a transport joins them, in its own write."""
        if self.result:
            return (b'{"jsonrpc":"2.0","id":', self.id, b',"result":', self.result, b"}")
        if self.id:
            return (b'{"jsonrpc":"2.0","id":', self.id, b',"error":', self.error, b"}")
        # No readable id. From 2025-11-25 on it is left out; before, JSON-RPC's null (`id_of`).
        return (b'{"jsonrpc":"2.0","error":', self.error, b"}")

    def encode(self) -> bytes:
        """The whole message as one bytes object."""
        return b"".join(self.parts)

    def decode(self) -> dict[str, Any]:
        """The whole message as plain Python objects, for tests and embedders."""
        message: dict[str, Any] = msgspec.json.decode(self.encode())
        return message


NOTHING = Response()
