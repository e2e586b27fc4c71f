"""The error of every database; apart from them, since it is needed before SQLite is."""

from portico.core.model.errors import PorticoError


class StoreError(PorticoError):
    """A database cannot be opened, read or written; the operation has changed nothing."""
