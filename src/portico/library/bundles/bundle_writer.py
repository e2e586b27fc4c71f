"""Writes a bundle: the same contents give the same bytes, on any machine."""

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from portico.core.state.files import draft
from portico.library.bundles.bundle_reader import open_bundle_file
from portico.library.bundles.contents import (
    MANIFEST,
    MAX_MANIFEST,
    BundleContents,
    BundledFile,
    BundleError,
    check_contents,
    encoded,
)
from portico.library.bundles.layout import StoredFile, checksum, directory, local_header

_MODE = 0o644


def described_files(files: Mapping[str, bytes]) -> tuple[BundledFile, ...]:
    """Return the entries of files by their paths, in order."""
    return tuple(
        BundledFile(path, len(files[path]), hashlib.sha256(files[path]).hexdigest())
        for path in sorted(files)
    )


def bundle_bytes(contents: BundleContents, files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a bundle with these files; raises BundleError."""
    contents = replace(contents, files=described_files(files))
    check_contents(contents)
    manifest = encoded(contents)
    if len(manifest) > MAX_MANIFEST:
        raise BundleError(f"the list of its files would be larger than {MAX_MANIFEST:,} bytes")
    return b"".join(_chunks(manifest, files))


def _chunks(manifest: bytes, files: Mapping[str, bytes]) -> Iterator[bytes]:
    stored: list[StoredFile] = []
    for name, data in ((MANIFEST, manifest), *((path, files[path]) for path in sorted(files))):
        one = StoredFile(name, len(data), checksum(data))
        stored.append(one)
        yield local_header(one)
        yield data
    yield directory(stored)


def write_bundle(path: str, data: bytes, *, force: bool = False) -> str:
    """Write a bundle whole or not at all, and read it again; return its digest.

    Raises BundleError if the file exists, unless `force` replaces it.
    """
    path = os.path.abspath(path)
    try:
        with draft(path, data) as made:
            os.chmod(made, _MODE)  # whatever the umask: it is made to be given away
            with open_bundle_file(made) as bundle:
                bundle.verify()
                digest = bundle.digest
            if force:
                os.replace(made, path)
            else:
                os.link(made, path)
    except OSError as error:
        raise BundleError(_unwritten(path, error)) from None
    return digest


def _unwritten(path: str, error: OSError) -> str:
    if isinstance(error, FileExistsError):
        return f"{path}: exists already; give another name, or --force to replace it"
    if isinstance(error, IsADirectoryError):
        return f"{path}: a folder; give the name of a file in it"
    why = error.strerror or str(error)
    how = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check the folder"
    return f"{path}: cannot be written: {why}; {how}; nothing was changed"
