"""Decides whether a component may be used, by `[trust]`, before anything of it is unpacked."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from portico.core.config.publishing import TrustedKey, TrustSettings
from portico.library.distribution.distribution_error import Untrusted
from portico.library.distribution.keys import public_key_file
from portico.library.distribution.manifest import Descriptor
from portico.library.distribution.reference import OciReference
from portico.library.distribution.signature import SignedBy, verified

Signatures = Sequence[tuple[Descriptor, bytes]]
"""The layers of a signature's manifest, with their payloads."""


class Trust:
    """The trusted keys; their files are read when the first signature is checked."""

    def __init__(self, settings: TrustSettings) -> None:
        self._settings = settings

    def check(
        self, reference: OciReference, digest: str, found: Signatures, *, is_locked: bool
    ) -> SignedBy | None:
        """Return who vouches for a digest, None for an unsigned component that is allowed.

        A retired key vouches only if the digest is in the lock file. Raises Untrusted.
        """
        repository = reference.repository
        mine = [
            name
            for name, key in self._settings.keys.items()
            if covers(key.signs_for, repository) and (is_locked or not key.retired)
        ]
        try:
            return verified(found, self._public(mine), repository, digest)
        except Untrusted as error:
            if covers(self._settings.unsigned, repository) and not (found and mine):
                return None
            why = self._other_key(mine, found, repository, digest) or str(error)
        raise Untrusted(f"{reference}: refused: {why}; {self._remedy(repository, bool(found))}")

    def _other_key(
        self, tried: Sequence[str], found: Signatures, repository: str, digest: str
    ) -> str:
        """Return why a known key that signed it does not count; empty if none did."""
        others = [name for name in self._settings.keys if name not in tried]
        try:
            name = verified(found, self._public(others), repository, digest).key
        except Untrusted:
            return ""
        key = self._settings.keys[name]
        if not covers(key.signs_for, repository):
            return f"it is signed by {name}, which may not sign for {repository}"
        return f"it is signed by {name}, a retired key, and its digest is not in the lock file"

    def _remedy(self, repository: str, is_signed: bool) -> str:
        if is_signed:
            return "add the public key of its author to [trust.keys], if you trust it"
        return f'sign it, or allow it with unsigned = ["{repository}"] in [trust]'

    def _public(self, names: Iterable[str]) -> Mapping[str, Any]:
        return {name: self._loaded[name] for name in names}

    @cached_property
    def _loaded(self) -> Mapping[str, Any]:
        return {name: _load(key) for name, key in self._settings.keys.items()}


def _load(key: TrustedKey) -> Any:
    return public_key_file(key.file)


def covers(places: Iterable[str], repository: str) -> bool:
    """True if one of these hosts and names is the repository, or above it; `*` is above all."""
    for place in places:
        above = place.removesuffix("/*").rstrip("/")
        if place == "*" or repository == above or repository.startswith(f"{above}/"):
            return True
    return False
