"""Keys of signatures: created, and read from private files."""

import hashlib
import os
import stat
from typing import Any

from portico.core.state import files
from portico.library.distribution.distribution_error import DistributionError

_MAX_KEY = 64 * 1024


def new_key(path: str) -> str:
    """Write a private key of P-256 to a new file and its public key beside it, `PATH.pub`.

    Returns the public key's digest; raises DistributionError.
    """
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = key.public_key().public_bytes(
        form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        files.create(path, private)
        files.replace(f"{path}.pub", public)
    except FileExistsError:
        raise DistributionError(f"{path}: a key exists there; give another file") from None
    except OSError as error:
        raise DistributionError(f"{path}: cannot be written: {error.strerror}") from None
    return fingerprint(key.public_key())


def private_key(path: str) -> Any:
    """Read a private key; raises DistributionError if others may read it."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data, status = _read(path)
    if os.name == "posix" and status.st_mode & 0o077:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        raise DistributionError(
            f"{path}: refused: others may read this key (mode {mode}); run `chmod 600 {path}`"
        )
    try:
        key = load_pem_private_key(data, password=None)
    except TypeError:
        raise DistributionError(f"{path}: the key has a password, which is not supported") from None
    except (ValueError, _unsupported()):
        raise DistributionError(f"{path}: not a private key in PEM") from None
    _checked(key.public_key(), path)
    return key


def public_key(pem: bytes, what: str) -> Any:
    """Read a public key; raises DistributionError."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, _unsupported()):
        raise DistributionError(f"{what}: not a public key in PEM") from None
    return _checked(key, what)


def public_key_file(path: str) -> Any:
    """Read a public key from a file; raises DistributionError."""
    return public_key(_read(path)[0], path)


def fingerprint(key: Any) -> str:
    """Return the digest of a public key: the same for every encoding of its file."""
    from cryptography.hazmat.primitives import serialization as form

    data = key.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _checked(key: Any, what: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    is_p256 = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
    if not is_p256 and not isinstance(key, Ed25519PublicKey):
        raise DistributionError(f"{what}: neither a P-256 nor an Ed25519 key")
    return key


def _read(path: str) -> tuple[bytes, os.stat_result]:
    try:
        return files.read(path, _MAX_KEY, follow=True)
    except OSError as error:
        raise DistributionError(f"{path}: cannot be read: {error.strerror}") from None


def _unsupported() -> type[Exception]:
    from cryptography.exceptions import UnsupportedAlgorithm

    return UnsupportedAlgorithm
