"""The facts about its client that a window sends, and the exposure that it keeps."""

from collections.abc import Mapping
from typing import Any

import msgspec

from portico.edge.fit.exposure_choice import ClientFacts, ExposureChoice
from portico.edge.windows.preferences import CLIENT, Preferences, name_in

KEPT, ENVIRONMENT = "kept", "environment"
"""Preferences: the exposure that an earlier owner chose; the client that the environment of the
window points to."""
_EXPOSURES = ("auto", "search", "all")


def window_facts(preferences: Preferences, name: str, version: str) -> ClientFacts:
    """Return what is known of a window's client, which has sent this name and version."""
    expose = preferences.get("expose")
    return ClientFacts(
        expose=expose if expose in _EXPOSURES else "",
        given=name_in(preferences, CLIENT),
        name=name,
        version=version,
        environment=name_in(preferences, ENVIRONMENT),
    )


def kept_choice(preferences: Preferences) -> ExposureChoice | None:
    """Return the choice that an earlier owner made for a window; None if there is none."""
    try:
        kept = msgspec.convert(preferences.get(KEPT), ExposureChoice)
    except msgspec.ValidationError:
        return None
    return kept if kept.expose in _EXPOSURES[1:] else None


def to_keep(choice: ExposureChoice) -> Mapping[str, Any]:
    """Return the preferences with which the next owner makes the same choice."""
    return {KEPT: msgspec.to_builtins(choice)}
