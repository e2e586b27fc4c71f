"""The seam between the host of a component and the adapters that speak to its exports."""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from portico.core.model.errors import INTERNAL_ERROR, PorticoError
from portico.library.wit.wit_values import Handle


class Guest(Protocol):
    """One instance of a component, entered by one call at a time."""

    def call(self, interface: str, function: str, *args: object) -> object:
        """Call an export with JSON, as `wit_values` has it for each type of WIT, and return JSON.

        `interface` is empty for a function of the root. Raises Mismatch before the guest runs.
        """
        ...

    def client_stream(self) -> Handle | None:
        """Return the stream that wasmcp's functions take for the client, if it may use one."""
        ...


class GuestError(PorticoError):
    """An error that the guest itself returned."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Capability(Protocol):
    """One group of exports that answers MCP methods: tools, resources, prompts or completions."""

    methods: frozenset[str]
    """For example `tools/list` and `tools/call`."""

    def answer(
        self, guest: Guest, method: str, params: Mapping[str, object]
    ) -> Mapping[str, object] | None:
        """Return the result object of a request; None: not mine. Raises GuestError."""
        ...


class Found(Struct, frozen=True):
    """The capabilities of a component, and the imports that it needs."""

    capabilities: tuple[Capability, ...]
    skipped: tuple[tuple[str, str], ...]
    """Functions that are not offered, each with the reason."""
    imports: tuple[str, ...]
    """Interfaces that the host must provide."""
    handler: Any = None
    """Its `HandlerExport`, if it is middleware; then it offers nothing."""
