"""Protocol versions as an ordered set: compare versions, never their text."""

from enum import IntEnum


class Version(IntEnum):
    """A released protocol version; a later one is greater."""

    V2024_11_05 = 1
    V2025_03_26 = 2
    V2025_06_18 = 3
    V2025_11_25 = 4
    V2026_07_28 = 5

    text: str
    modern: bool

    def __init__(self, _: int) -> None:
        # Derived from the name, so that the two cannot disagree.
        self.text = self.name[1:].replace("_", "-")
        self.modern = self.name >= "V2026_07_28"


LEGACY = tuple(version for version in Version if not version.modern)
MODERN = tuple(version for version in Version if version.modern)
LATEST_LEGACY = LEGACY[-1]
BY_TEXT = {version.text: version for version in Version}


def version_of(text: str) -> Version:
    """Return the version with this text, or raise ValueError."""
    version = BY_TEXT.get(text)
    if version is None:
        raise ValueError(f"{text!r} is not a protocol version; use one of {', '.join(BY_TEXT)}")
    return version


def negotiate(requested: str) -> Version:
    """Return the version for an `initialize` request (lifecycle, version negotiation).

    That is the requested version if it is a legacy one that we support, otherwise our latest
    legacy one: the modern era has no handshake.
    """
    version = BY_TEXT.get(requested)
    return version if version is not None and not version.modern else LATEST_LEGACY
