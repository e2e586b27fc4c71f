"""Portico: one doorway to every MCP server, component and agent.

The names below are imported when first used: starting fast is a feature.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from portico.commands.cli.embedded import run as run
    from portico.commands.cli.embedded import serve as serve
    from portico.commands.cli.embedded import wrap as wrap
    from portico.core.definitions.definition_error import DefinitionError as DefinitionError
    from portico.core.model.content import Contents as Contents
    from portico.core.model.content import Embedded as Embedded
    from portico.core.model.content import Message as Message
    from portico.core.model.content import ResourceLink as ResourceLink
    from portico.core.model.content import Text as Text
    from portico.core.model.content import ToolResult as ToolResult
    from portico.core.model.context import ROOTS as ROOTS
    from portico.core.model.context import Context as Context
    from portico.core.model.context import Elicited as Elicited
    from portico.core.model.context import elicitation as elicitation
    from portico.core.model.context import sampling as sampling
    from portico.core.model.context import url_elicitation as url_elicitation
    from portico.core.model.errors import AskError as AskError
    from portico.core.model.errors import InvalidParams as InvalidParams
    from portico.core.model.errors import McpError as McpError
    from portico.core.model.errors import MissingCapability as MissingCapability
    from portico.core.model.errors import NameClash as NameClash
    from portico.core.model.errors import PorticoError as PorticoError
    from portico.core.model.errors import RegistrationError as RegistrationError
    from portico.core.model.errors import SessionError as SessionError
    from portico.core.model.errors import StartError as StartError
    from portico.core.model.errors import ToolError as ToolError
    from portico.core.model.message import Request as Request
    from portico.core.model.message import Response as Response
    from portico.core.model.offer import Offer as Offer
    from portico.core.model.release import __version__ as __version__
    from portico.core.model.types import Answer as Answer
    from portico.core.model.types import Change as Change
    from portico.core.model.types import Endpoint as Endpoint
    from portico.core.model.types import Handler as Handler
    from portico.core.model.types import Link as Link
    from portico.core.model.version import Version as Version
    from portico.core.state.pending import after as after
    from portico.edge.client.memory_client import MemoryClient as MemoryClient
    from portico.edge.transport.client_connection import Connection as Connection
    from portico.edge.transport.custom_transport import Transport as Transport
    from portico.edge.transport.http_limits import HttpLimits as HttpLimits
    from portico.gateway.app import parse_address as parse_address
    from portico.gateway.app import serve_http as serve_http
    from portico.gateway.app import serve_stdio as serve_stdio
    from portico.gateway.app import serve_transport as serve_transport
    from portico.library.chain.hooks import NextCall as NextCall
    from portico.library.chain.hooks import OnCall as OnCall
    from portico.library.chain.hooks import OnResult as OnResult
    from portico.library.chain.hooks import ToolRequest as ToolRequest
    from portico.library.chain.hooks import hooks as hooks
    from portico.library.chain.only import Only as Only
    from portico.library.functions.blocking import BlockingContext as BlockingContext
    from portico.library.functions.media import Audio as Audio
    from portico.library.functions.media import Image as Image
    from portico.library.functions.registered import Tool as Tool
    from portico.library.functions.registered import load_prompts as load_prompts
    from portico.library.functions.registered import load_resources as load_resources
    from portico.library.functions.registered import load_templates as load_templates
    from portico.library.functions.registered import load_tools as load_tools
    from portico.library.server import Server as Server

_HOMES = {
    "portico.gateway.app": ("parse_address", "serve_http", "serve_stdio", "serve_transport"),
    "portico.library.chain.hooks": ("NextCall", "OnCall", "OnResult", "ToolRequest", "hooks"),
    "portico.library.chain.only": ("Only",),
    "portico.commands.cli.embedded": ("run", "serve", "wrap"),
    "portico.core.definitions.definition_error": ("DefinitionError",),
    "portico.core.model.content": (
        "Contents",
        "Embedded",
        "ResourceLink",
        "Message",
        "Text",
        "ToolResult",
    ),
    "portico.core.model.context": (
        "ROOTS",
        "Context",
        "Elicited",
        "elicitation",
        "sampling",
        "url_elicitation",
    ),
    "portico.core.model.errors": (
        "AskError",
        "InvalidParams",
        "McpError",
        "MissingCapability",
        "NameClash",
        "PorticoError",
        "RegistrationError",
        "SessionError",
        "StartError",
        "ToolError",
    ),
    "portico.core.model.message": ("Request", "Response"),
    "portico.core.model.offer": ("Offer",),
    "portico.core.model.types": ("Answer", "Change", "Endpoint", "Handler", "Link"),
    "portico.core.model.version": ("Version",),
    "portico.library.functions.blocking": ("BlockingContext",),
    "portico.library.functions.media": ("Audio", "Image"),
    "portico.core.model.release": ("__version__",),
    "portico.library.functions.registered": (
        "Tool",
        "load_prompts",
        "load_resources",
        "load_templates",
        "load_tools",
    ),
    "portico.library.server": ("Server",),
    "portico.core.state.pending": ("after",),
    "portico.edge.client.memory_client": ("MemoryClient",),
    "portico.edge.transport.client_connection": ("Connection",),
    "portico.edge.transport.custom_transport": ("Transport",),
    "portico.edge.transport.http_limits": ("HttpLimits",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*_HOME_OF]  # noqa: PLE0604  (all are strings)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'portico' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
