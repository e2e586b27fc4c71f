"""Which addresses a login may contact, so that a server cannot send Portico into a private network.

A server names its authorization server, and that names its endpoints; any of them may lead to an
address that only this machine can reach. Such an address is contacted only if the configured server
itself is at one, or if the config names that host.
"""

import ipaddress
from collections.abc import Callable

from msgspec import Struct

from portico.core.http1.url import Origin

_V4_IN_V6 = (
    ipaddress.IPv6Network("::ffff:0:0/96"),  # mapped
    ipaddress.IPv6Network("::/96"),  # compatible
    ipaddress.IPv6Network("::ffff:0:0:0/96"),  # translated
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64
)
"""Networks whose last 32 bits are an IPv4 address."""
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
_6TO4 = ipaddress.IPv6Network("2002::/16")
_SITE_LOCAL = ipaddress.IPv6Network("fec0::/10")

Permit = Callable[[str], bool]


def is_global(address: str) -> bool:
    """True if an address is public, whatever it is wrapped in."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if any(found in network for network in _V4_IN_V6):
            return is_global(str(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)))
        if found in _6TO4:
            return is_global(str(ipaddress.IPv4Address(int(found) >> 80 & 0xFFFFFFFF)))
        if found in _LOCAL_NAT64 or found in _SITE_LOCAL:
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


class AddressRule(Struct, frozen=True):
    """The addresses that the login of one server may contact."""

    is_local: bool = False
    """True if the configured server itself is at an address that is not public."""
    trusted: frozenset[str] = frozenset()
    """The hosts that the config names."""

    def permit(self, origin: Origin) -> Permit:
        """Return what to ask for each address of an origin, at every connect."""
        if self.is_local or origin.host in self.trusted:
            return lambda _: True
        return is_global
