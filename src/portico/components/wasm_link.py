"""A WebAssembly component that is middleware, as a link."""

from msgspec.structs import replace

from portico.components.classify import Component, ComponentError
from portico.components.handler_link import HandlerLink
from portico.components.handler_worker import HandlerWorker
from portico.components.wasm_process import settings_of
from portico.config.schema import ServerEntry
from portico.model.types import Link
from portico.state.stderr import STDERR
from portico.upstream.configured_address import address
from portico.wasm.binary import MAX_SIZE, outline
from portico.wasm.handler_protocol import is_handler


def is_middleware(path: str) -> bool:
    """True if a component handles requests on their way, instead of offering something."""
    with open(path, "rb") as file:
        return any(map(is_handler, outline(file.read(MAX_SIZE)).exports))


def middleware_of(component: Component) -> tuple[Link, ...]:
    """Return the link of a WebAssembly component; nothing if it is not middleware."""
    if component.kind != "wasm" or component.entry is None or not is_middleware(component.binary):
        return ()
    return (_link(replace(component.entry, name=component.name)),)


def only_middleware(component: Component) -> tuple[Link, ...]:
    """Return the link of a WebAssembly component; raises ComponentError if it is not one."""
    links = middleware_of(component)
    if not links:
        what = "the component offers something, and handles no requests of others"
        raise ComponentError(f"{component.label}: {what}; name it in [components]")
    return links


def _link(entry: ServerEntry) -> HandlerLink:
    at = address(entry, STDERR.write_line)
    time_s = settings_of(entry).limits.time_s
    return HandlerLink(entry.name, lambda: HandlerWorker(at, time_s=time_s))
