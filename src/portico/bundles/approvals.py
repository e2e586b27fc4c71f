"""The rights of bundles that an operator approved, in the folder of the state."""

import hashlib
import os
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from portico.bundles.bundle_reader import BundleReader
from portico.bundles.contents import Wish
from portico.model.wording import printable
from portico.state.files import make_private, read, replace

_FOLDER = "approvals"
_FORMAT = 1
_MAX_SIZE = 4 * 1024 * 1024
NO_SANDBOX = (
    "runs Python code without a sandbox: it can read and change your files, use the network and "
    "start programs, as you can"
)


class _Approval(Struct, frozen=True):
    """The approved wishes of one bundle or origin."""

    origin: str
    wishes: tuple[Wish, ...]
    format: int = _FORMAT


class Approvals:
    """Stores approved wishes, by bundle and by origin."""

    def __init__(self, state: str) -> None:
        self._folder = os.path.join(state, _FOLDER)

    def missing(self, bundle: BundleReader, origin: str) -> list[Wish]:
        """Return the wishes that were not approved: for this bundle, or for this origin."""
        wishes = bundle.contents.wishes
        if not wishes or self._read(bundle.digest) is not None:
            return []
        before = self._read(origin)
        accepted = set() if before is None else set(before.wishes)
        return [one for one in wishes if one not in accepted]

    def is_known(self, bundle: BundleReader) -> bool:
        """True if exactly this bundle was approved."""
        return self._read(bundle.digest) is not None

    def accept(self, bundle: BundleReader, origin: str) -> None:
        """Approve all wishes of a bundle, and of each bundle in it; raises OSError."""
        make_private(self._folder)
        if origin:
            self._write(origin, bundle.contents.wishes, origin)
        for one in _with_inner(bundle):
            self._write(one.digest, one.contents.wishes, origin)

    def _write(self, key: str, wishes: Sequence[Wish], origin: str) -> None:
        replace(self._path(key), msgspec.json.encode(_Approval(origin, tuple(wishes))))

    def _read(self, key: str) -> _Approval | None:
        # A damaged approval counts as missing, so that the operator decides again.
        with suppress(OSError, msgspec.MsgspecError):
            found = msgspec.json.decode(read(self._path(key), _MAX_SIZE)[0], type=_Approval)
            return found if found.format == _FORMAT else None
        return None

    def _path(self, key: str) -> str:
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return os.path.join(self._folder, f"{name}.json")


def _with_inner(bundle: BundleReader) -> Iterable[BundleReader]:
    yield bundle
    for _, inner in bundle.inner():
        yield from _with_inner(inner)


def wish_text(wish: Wish) -> str:
    """Return a wish other than that of code in words."""
    what, value = wish.kind, wish.value
    if what == "program":
        return f"{wish.path}: starts a program of the bundle: {shlex.join(value[:-1])}"
    if what == "command":
        return f"{wish.path}: starts the command: {shlex.join(value)}"
    if what == "url":
        return f"{wish.path}: connects to {value[0]}"
    if what == "variable":
        return f"{wish.path}: gets the environment variable {value[0]}"
    return f"{wish.path}: gets {value[0]}"


def wish_lines(wishes: Iterable[Wish]) -> list[str]:
    """Return wishes in words, safe to print; all wishes of code share one line."""
    found = list(wishes)
    code = list(dict.fromkeys(one.path for one in found if one.kind == "python"))
    lines = [f"{', '.join(code)}: {NO_SANDBOX}"] if code else []
    lines += [wish_text(one) for one in found if one.kind != "python"]
    return [printable(line) for line in lines]
