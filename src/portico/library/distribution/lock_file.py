"""`portico.lock`: the digest of each tag that was pulled, beside the config."""

import os
from collections.abc import Mapping

import msgspec
from msgspec import Struct, field

from portico.core.documents.problems import ConfigError
from portico.core.documents.save import rewrite
from portico.core.state import files
from portico.library.distribution.distribution_error import DistributionError
from portico.library.distribution.reference import SCHEME, checked_digest, parse_reference

NAME = "portico.lock"
_VERSION = 1
_MAX_SIZE = 4 * 1024 * 1024
_MAX_FORMER = 50


class LockedComponent(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The digest of one reference."""

    digest: str
    signed_by: str = ""
    """The name of the key that vouched for it; empty if it is unsigned."""
    former: tuple[str, ...] = ()
    """Digests that the tag had before, newest first: none of them comes back unasked."""


class _Content(Struct, forbid_unknown_fields=True):
    version: int = _VERSION
    components: dict[str, LockedComponent] = field(default_factory=dict)


class LockFile:
    """The lock file of one config."""

    def __init__(self, config_path: str) -> None:
        self.path = os.path.join(os.path.dirname(os.path.abspath(config_path)), NAME)

    def components(self) -> Mapping[str, LockedComponent]:
        """Return all entries by reference; raises DistributionError."""
        try:
            data, _ = files.read(self.path, _MAX_SIZE, follow=True)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise DistributionError(f"{self.path}: cannot be read: {error.strerror}") from None
        return self._parse(data).components

    def find(self, reference: str) -> LockedComponent | None:
        """Return the entry of a reference; None if it was never pulled."""
        return self.components().get(reference)

    def has_digest(self, digest: str) -> bool:
        """True if some reference is locked to this digest."""
        return any(one.digest == digest for one in self.components().values())

    def lock(
        self, reference: str, digest: str, signed_by: str, expected: LockedComponent | None
    ) -> None:
        """Write an entry; raises DistributionError if another process has changed it meanwhile."""

        def change(data: bytes | None) -> bytes:
            content = self._parse(data) if data else _Content()
            found = content.components.get(reference)
            if found is not None and found.digest == digest:
                former = found.former
            elif found != expected:
                raise DistributionError(
                    f"{self.path}: another process has changed {reference}; try again"
                )
            else:
                former = () if found is None else (found.digest, *found.former)
            former = tuple(one for one in former if one != digest)[:_MAX_FORMER]
            content.components[reference] = LockedComponent(digest, signed_by, former)
            content.components = dict(sorted(content.components.items()))
            return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"

        try:
            rewrite(self.path, change)
        except ConfigError as error:
            raise DistributionError(str(error)) from None

    def _parse(self, data: bytes) -> _Content:
        try:
            found = msgspec.json.decode(data, type=_Content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._invalid(str(error)) from None
        if found.version != _VERSION:
            raise self._invalid(f"its version is {found.version}, not {_VERSION}")
        for reference, one in found.components.items():
            try:
                if not reference.startswith(SCHEME):
                    raise DistributionError(f"{reference[:80]!r} is not a reference")
                parse_reference(reference)
                for digest in (one.digest, *one.former):
                    checked_digest(digest)
            except DistributionError as error:
                raise self._invalid(str(error)) from None
        return found

    def _invalid(self, why: str) -> DistributionError:
        how = "restore it, or delete it and pull again"
        return DistributionError(f"{self.path}: cannot be used: {why}; {how}")
