"""Notifies the other processes of this user of a stored login, if this one has the means."""

from collections.abc import Callable

Tell = Callable[[str], object]
"""Takes the key of a place; it may block."""
_TELL: list[Tell] = []


def use(tell: Tell) -> None:
    """Notify other processes in this way of the logins that this one stores."""
    _TELL[:] = [tell]


def announce(place: str) -> None:
    """Notify other processes of a login that was stored for a place; it may block."""
    for tell in _TELL:
        tell(place)
