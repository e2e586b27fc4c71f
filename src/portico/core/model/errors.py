"""The error tree. Each class shows whose fault the error is and carries the JSON-RPC code.

PorticoError
├── McpError                  returned to the client unchanged: code, message, data
│   ├── InvalidParams         the client's fault, -32602
│   └── MissingCapability     the client lacks a capability that the handler requires
├── ToolError                 a tool failed; the model gets the message (`isError`)
├── SessionError              a value of a session cannot be kept, or there is no session
├── AskError                  the client rejected or did not answer a question
├── RegistrationError         the server's author registered something invalid
│   └── NameClash             a name that is added exists already
├── StartError                the lifespan of a server failed to start
└── TargetError               an upstream is unreachable or misbehaves
"""

from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002  # up to 2025-11-25; INVALID_PARAMS from 2026-07-28 on
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022


class PorticoError(Exception):
    """The base class of all errors that Portico raises."""


class McpError(PorticoError):
    """An error that is returned as a JSON-RPC error."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.data = data


class InvalidParams(McpError):
    """The params of a request are not valid for its method."""

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message, INVALID_PARAMS, data)


class MissingCapability(McpError):
    """The client did not declare a capability that the handler requires."""

    def __init__(self, capability: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(
            f"this requires the {capability} capability, which the client did not declare",
            MISSING_CAPABILITY,
            {"requiredCapabilities": {capability: detail or {}}},
        )
        self.capability = capability


class ToolError(PorticoError):
    """Raise this in a tool; the model gets the message unchanged."""


class SessionError(PorticoError):
    """A value cannot be kept for a session, or the request has no session; nothing changed."""


class AskError(PorticoError):
    """The client returned an error for a question, or no answer."""

    def __init__(
        self,
        message: str,
        code: int = INTERNAL_ERROR,
        data: Any = None,
        *,
        is_answer: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.is_answer = is_answer
        """True if the client itself returned the error; False if it did not answer."""


class RegistrationError(PorticoError, ValueError):
    """A registration is not valid."""


class NameClash(RegistrationError):
    """A link adds a name that exists already, and does not shadow it."""

    def __init__(self, kind: str, key: str, message: str = "") -> None:
        super().__init__(
            message
            or f"cannot add {kind.removesuffix('s')} {key!r}: it exists already; rename it, or "
            f"replace the other with shadow=({key!r},)"
        )
        self.kind = kind
        """`tools`, `resources`, `templates` or `prompts`."""
        self.key = key


class StartError(PorticoError):
    """The lifespan of a server failed to start; the cause is the exception that it raised."""


class TargetError(PorticoError):
    """An upstream failed; `details` go into error data and logs."""

    def __init__(
        self, message: str, *, kind: str = "failed", server: str = "", **details: Any
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.server = server
        self.details = details
