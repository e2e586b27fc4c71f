"""The settings of a worker: the component's file, and everything that it is granted.

They are the worker's only environment variable, since its command line is visible to all users.
"""

from typing import Literal

import msgspec
from msgspec import Struct

from portico.core.config.component_grants import ComponentGrants, GuestLimits

VARIABLE = "PORTICO_WASM"
"""The environment variable with the settings as JSON."""

MB = 1024 * 1024
Instance = Literal["call", "session", "shared"]


class HostSettings(Struct, frozen=True, kw_only=True):
    """All that a worker knows when it starts."""

    file: str
    name: str
    """The component's name for messages."""
    cache: str
    """The folder of compiled code."""
    state: str
    """The folder with the user's secret, with which compiled code is signed."""
    sidecar: str = ""
    """The file that describes its functions; by default the one beside it."""
    stamp: str = ""
    """The size and time of both files: a changed file is another server to the catalogs on disk."""
    granted: ComponentGrants = ComponentGrants()
    instance: Instance = "call"

    @property
    def limits(self) -> GuestLimits:
        """The limits of the component."""
        return self.granted.limits

    def encode(self) -> str:
        """Return the settings as the value of the variable."""
        return msgspec.json.encode(self).decode()


def decode_settings(text: str) -> HostSettings:
    """Return the settings in the variable's value; raises msgspec.DecodeError."""
    return msgspec.json.decode(text, type=HostSettings)
