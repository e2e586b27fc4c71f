"""The rights of bundles that an operator approved, in the folder of the state."""

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from portico.core.model.wording import printable
from portico.core.state.files import make_private, read, replace
from portico.library.bundles.bundle_reader import BundleReader
from portico.library.bundles.contents import Wish

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
        wishes = _with_code(bundle)
        if not wishes or self._read(bundle.digest) is not None:
            return []
        before = self._read(origin)
        accepted = set() if before is None else set(before.wishes)
        return [one for one in wishes if one not in accepted]

    def has_changed(self, origin: str) -> bool:
        """True if another bundle of this origin was approved."""
        return self._read(origin) is not None

    def is_known(self, bundle: BundleReader) -> bool:
        """True if exactly this bundle was approved."""
        return self._read(bundle.digest) is not None

    def accept(self, bundle: BundleReader, origin: str) -> None:
        """Approve all wishes of a bundle, and of each bundle in it; raises OSError."""
        make_private(self._folder)
        if origin:
            self._write(origin, _with_code(bundle), origin)
        for one in _with_inner(bundle):
            self._write(one.digest, _with_code(one), origin)

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


def _with_code(bundle: BundleReader) -> list[Wish]:
    """Return the wishes of a bundle; each grant with the digest of the code that gets it, so that
    other code is not given what was granted to this."""
    digests = dict(_granted_code(bundle))
    return [
        msgspec.structs.replace(one, value=(*one.value, digests[one.path]))
        if one.kind == "grant"
        else one
        for one in bundle.contents.wishes
    ]


def _granted_code(bundle: BundleReader, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the digest of each component that requires grants."""
    files = {one.path: one.sha256 for one in bundle.contents.files}
    for one in bundle.contents.components:
        if one.grants:
            yield f"{above}{one.name}", files[one.file]
    for name, inner in bundle.inner():
        yield from _granted_code(inner, f"{above}{name}/")


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
