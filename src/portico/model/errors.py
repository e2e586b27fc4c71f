"""The error tree. A class says whose fault it is and carries the JSON-RPC code.

PorticoError
├── McpError                  answered to the asker as it is: code, message, data
│   ├── InvalidParams         the asker's fault, -32602
│   └── MissingCapability     the asker's client cannot do what the handler needs
├── ToolError                 a tool failed and says so to the model (`isError`)
├── AskError                  the client refused, or failed to answer, a question
├── RegistrationError         the server's author registered something that cannot be
└── TargetError               a server we are a client of cannot be reached or misbehaves
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
    """Everything Portico raises on purpose."""


class McpError(PorticoError):
    """A JSON-RPC error to answer with."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.data = data


class InvalidParams(McpError):
    """The params of a request are not what its method takes."""

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message, INVALID_PARAMS, data)


class MissingCapability(McpError):
    """The asker's client did not declare what the handler needs."""

    def __init__(self, capability: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(
            f"this needs a client with the {capability} capability, which yours did not declare",
            MISSING_CAPABILITY,
            {"requiredCapabilities": {capability: detail or {}}},
        )
        self.capability = capability


class ToolError(PorticoError):
    """Raise it in a tool to tell the model, in its own words, what went wrong."""


class AskError(PorticoError):
    """A question to the client came back as an error, or not at all."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class RegistrationError(PorticoError, ValueError):
    """Something was registered that cannot work."""


class TargetError(PorticoError):
    """A server that we are a client of failed; `details` say how, for error data and logs."""

    def __init__(
        self, message: str, *, kind: str = "failed", server: str = "", **details: Any
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.server = server
        self.details = details
