"""The failures of distribution.

DistributionError
├── InvalidReference      a reference cannot be read
├── Untrusted             a digest or a signature does not vouch for the data
└── RegistryUnavailable   the registry cannot be reached, or stopped half-way: try again
"""

from portico.core.model.errors import PorticoError


class DistributionError(PorticoError):
    """A component cannot be pushed, pulled or used."""


class InvalidReference(DistributionError):
    """A reference is not of a known form."""


class Untrusted(DistributionError):
    """The digest does not match the data, or no trusted key has signed it."""


class RegistryUnavailable(DistributionError):
    """The registry cannot be reached, or did not finish its answer."""
