"""Whether links to this machine lead the browsers of all clients here."""

import os
from threading import Event

_REMOTE = Event()


def expect_remote_clients() -> None:
    """Note that clients may be on other machines, where a link points to another host."""
    _REMOTE.set()


def reaches_clients() -> bool:
    """True if the browser of every client of this process is on this machine."""
    return not _REMOTE.is_set() and not os.environ.get("SSH_CONNECTION")
