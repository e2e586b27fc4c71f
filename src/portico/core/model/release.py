"""The version of this release of Portico."""

__version__ = "0.1.0"
