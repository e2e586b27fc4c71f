"""Protocol versions as an ordered set: compare them, never their text."""

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
        # The name spells the date, so the two cannot drift apart.
        self.text = self.name[1:].replace("_", "-")
        self.modern = self.name >= "V2026_07_28"


LEGACY = tuple(version for version in Version if not version.modern)
MODERN = tuple(version for version in Version if version.modern)
LATEST_LEGACY = LEGACY[-1]
BY_TEXT = {version.text: version for version in Version}


def version_of(text: str) -> Version:
    """The version that is spelled so; ValueError for one that there is not."""
    version = BY_TEXT.get(text)
    if version is None:
        raise ValueError(f"{text!r} is no protocol version; one of {', '.join(BY_TEXT)}")
    return version


def negotiate(asked: str) -> Version:
    """The version for an `initialize` that asked for this one (lifecycle, version negotiation).

    A legacy version we speak is answered with itself, anything else with our latest legacy one:
    the modern era has no handshake to agree on it in.
    """
    version = BY_TEXT.get(asked)
    return version if version is not None and not version.modern else LATEST_LEGACY
