"""The settings of a worker: the component's file, and everything that it is granted.

They are the worker's only environment variable, since its command line is visible to all users.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

VARIABLE = "PORTICO_WASM"
"""The environment variable with the settings as JSON."""

MB = 1024 * 1024
Instance = Literal["call", "shared"]


class Folder(Struct, frozen=True):
    """A folder that a guest may use."""

    path: str
    guest: str
    """Its path inside the guest."""
    is_writable: bool = False


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one component."""

    memory_mb: int = 128
    """Of each memory of an instance."""
    time_s: float = 30.0
    """Of one call: the guest's own time, and that of the functions of the host that it calls."""
    output_mb: float = 4.0
    """Of one answer, as JSON."""
    concurrency: int = 4
    """Calls at the same time; others wait."""


class Granted(Struct, frozen=True, kw_only=True):
    """All that a guest may use beyond computing."""

    files: tuple[Folder, ...] = ()
    env: Mapping[str, str] = {}
    http: tuple[str, ...] = ()
    """Hosts, as `host`, `host:port` or `*.host`; `any` for all of them, without checks."""
    config: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    tools: tuple[str, ...] = ()
    """Patterns of the tools that are shown; empty shows all."""
    elicit: bool = False
    """True if it may ask the person in front of the client."""
    sample: bool = False
    """True if it may use the client's model."""


class HostSettings(Struct, frozen=True, kw_only=True):
    """All that a worker knows when it starts."""

    file: str
    name: str
    """The component's name for messages."""
    cache: str
    """The folder of compiled code."""
    state: str
    """The folder with the user's secret, with which compiled code is signed."""
    stamp: str = ""
    """The size and time of the file: a changed file is another server to the catalogs on disk."""
    limits: Limits = Limits()
    granted: Granted = Granted()
    instance: Instance = "call"

    def encode(self) -> str:
        """Return the settings as the value of the variable."""
        return msgspec.json.encode(self).decode()


def decode_settings(text: str) -> HostSettings:
    """Return the settings in the variable's value; raises msgspec.DecodeError."""
    return msgspec.json.decode(text, type=HostSettings)
