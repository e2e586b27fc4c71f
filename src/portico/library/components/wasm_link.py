"""A WebAssembly component that is middleware, as a link."""

from msgspec.structs import replace

from portico.core.config.schema import ServerEntry
from portico.core.model.types import Link
from portico.core.state.stderr import STDERR
from portico.library.components.analyze import SourceFacts
from portico.library.components.classify import Component, ComponentError
from portico.library.components.handler_link import HandlerLink
from portico.library.components.handler_worker import HandlerWorker
from portico.library.components.wasm_process import settings_of
from portico.library.wasm.binary import NotAComponent, outline, read_component
from portico.library.wasm.handler_protocol import is_handler
from portico.library.wasm.own_wit import UnknownOwnVersion, check_version
from portico.upstream.connections.configured_address import address


def is_middleware(path: str) -> bool:
    """True if a component handles requests on their way, instead of offering something.

    Raises ComponentError for a file that is damaged, and for a handler of an unknown version.
    """
    try:
        handlers = [*filter(is_handler, outline(read_component(path)).exports)]
        for name in handlers:
            check_version("exports", name)
        return bool(handlers)
    except (NotAComponent, UnknownOwnVersion) as error:
        raise ComponentError(f"{path}: {error}") from None


def binary_facts(component: Component) -> SourceFacts:
    """Return what the file of a component shows without being run; raises ComponentError."""
    is_link = component.kind == "wasm" and is_middleware(component.binary)
    return SourceFacts(links=("handle",) if is_link else (), may_have_server=not is_link)


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
        raise ComponentError(f"{component.label}: {what}; name it in [components] only")
    return links


def _link(entry: ServerEntry) -> HandlerLink:
    at = address(entry, STDERR.write_line)
    settings = settings_of(entry)
    time_s = settings.limits.time_s
    return HandlerLink(entry.name, lambda: HandlerWorker(at, time_s=time_s), settings.file)
