"""JSON-RPC messages, decoded only as far as needed: ids, params and results stay raw bytes."""

from collections.abc import Generator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from portico.core.model.errors import InvalidParams
from portico.core.model.methods import TABLE, MethodKind, MethodMeaning
from portico.core.model.version import LATEST_LEGACY, Version

T = TypeVar("T")


class Meta(Struct, frozen=True, gc=False):
    """The metadata of a request: of a modern one its client, of any its progress token."""

    client_capabilities: bytes = b""
    client_info: bytes = b""
    log_level: str = ""
    progress_token: bytes = b""


NO_META = Meta()
_STATIC = MethodKind.STATIC  # enum members are slow to look up


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
    """The timeout of this call; 0 for that of its upstream."""
    asked: str = ""
    """The meta-tool that the client called: this tool itself, or one that executes it."""
    arguments: dict[str, Any] | None = None
    """The arguments of a call, if they are already validated."""
    meaning: MethodMeaning | None = None
    """The meaning of the method at this version; None if the version does not have it."""
    is_derived: bool = False
    """True if a link or handler made it: the client's HTTP headers describe another request."""

    def __post_init__(self) -> None:
        self.meaning = TABLE.get((self.method, self.version))

    def set_version(self, version: Version) -> None:
        """Make this a request of another version."""
        if version is not self.version:
            self.version = version
            self.meaning = TABLE.get((self.method, version))

    def calling(self, name: str, arguments: Mapping[str, Any] | None = None) -> "Request":
        """Return a call of another tool for the same client; without arguments, with those of this
        request. A link passes it to the next handler."""
        fields = self._fields()
        fields["name"] = Raw(msgspec.json.encode(name))
        if arguments is not None:
            fields["arguments"] = Raw(msgspec.json.encode(arguments))
        for key in ("uri", "ref", "argument", "context"):
            fields.pop(key, None)
        return Request(
            method="tools/call",
            id=self.id,
            params=msgspec.json.encode(fields),
            version=self.version,
            meta=self.meta,
            name=name,
            timeout_s=self.timeout_s,
            asked=self.asked,
            is_derived=True,
        )

    def _fields(self) -> dict[str, Raw]:
        """Return the params field by field, each as raw JSON."""
        return msgspec.json.decode(self.params, type=dict[str, Raw]) if self.params else {}

    @property
    def is_static(self) -> bool:
        """True if the catalog has the encoded answer."""
        meaning = self.meaning
        return meaning is not None and meaning.kind is _STATIC

    def decode(self) -> dict[str, Any]:
        """Return the params as plain Python objects."""
        if not self.params:
            return {}
        params: dict[str, Any] = msgspec.json.decode(self.params, type=dict[str, Any])
        return params

    def decode_as(self, type: type[T]) -> T:
        """Return the params as a type, or raise InvalidParams with the name of the field."""
        try:
            return msgspec.json.decode(self.params or b"{}", type=type)
        except msgspec.DecodeError as error:
            raise InvalidParams(f"params of {self.method}: {error}") from None


class Response(Struct, kw_only=True, frozen=True, gc=False):
    """One response: a result, an error, or nothing (to a notification)."""

    id: bytes = b""
    result: bytes = b""
    """The raw JSON of the result; for a static answer, the catalog's own bytes object."""
    error: bytes = b""
    """The raw JSON of the error object."""
    code: int = 0
    """The error's code, so that a transport can choose its status without decoding."""

    def __await__(self) -> Generator[Any, None, "Response"]:
        """Return itself, so that every answer of a handler can be awaited."""
        yield from ()
        return self

    @property
    def is_nothing(self) -> bool:
        """True if there is nothing to send."""
        return not self.result and not self.error

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The message in parts, which the transport joins when it writes them."""
        if self.result:
            return (b'{"jsonrpc":"2.0","id":', self.id, b',"result":', self.result, b"}")
        if self.id:
            return (b'{"jsonrpc":"2.0","id":', self.id, b',"error":', self.error, b"}")
        # Without a readable id: from 2025-11-25 on it is left out; before, it is null.
        return (b'{"jsonrpc":"2.0","error":', self.error, b"}")

    def encode(self) -> bytes:
        """Return the whole message as one bytes object."""
        return b"".join(self.parts)

    def decode(self) -> dict[str, Any]:
        """Return the whole message as plain Python objects, for tests and embedders."""
        message: dict[str, Any] = msgspec.json.decode(self.encode())
        return message


NOTHING = Response()
