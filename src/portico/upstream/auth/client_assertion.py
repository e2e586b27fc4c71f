"""The signed assertion with which a machine authenticates (RFC 7523), and the key that signs it."""

import os
import stat
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from portico.core.state import files
from portico.upstream.auth.flow import LoginError

LIFE_S = 60.0
"""How long an assertion is valid: long enough for a slow request, too short to be of use later."""
_MAX_KEY = 64 * 1024
_RSA = ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_MIN_RSA = 2048


class AssertionKey:
    """A private key. It is read from its file again for each login, so it can be replaced."""

    def __init__(self, key: Any, id: str = "") -> None:
        """`key` is one of the package cryptography; raises LoginError for a kind without a use."""
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # slow to import

        self._key = key
        self._id = id
        if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= _MIN_RSA:
            self.algorithms: tuple[str, ...] = _RSA
        elif isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
            self.algorithms = (_CURVES[key.curve.name],)
        elif isinstance(key, ed25519.Ed25519PrivateKey):
            self.algorithms = ("EdDSA", "Ed25519")
        else:
            raise LoginError(
                f"the private key must be an RSA key of at least {_MIN_RSA} bits, an EC key of the "
                "curve P-256, P-384 or P-521, or an Ed25519 key"
            )

    def __repr__(self) -> str:
        return "AssertionKey()"

    def assertion(
        self, client: str, audience: str, accepted: Sequence[str], now: float, nonce: str
    ) -> str:
        """Return the assertion of a client for one authorization server; raises LoginError."""
        offered = [one for one in self.algorithms if one in accepted or not accepted]
        if not offered:
            raise LoginError(
                f"{audience} does not accept signatures of this kind of key "
                f"({self.algorithms[0]}); it accepts {', '.join(accepted[:10])}"
            )
        head = {"alg": offered[0], "typ": "JWT"} | ({"kid": self._id} if self._id else {})
        claims = {
            "iss": client,
            "sub": client,
            "aud": audience,
            "jti": nonce,
            "iat": int(now),
            "exp": int(now + LIFE_S),
        }
        signed = f"{_text(msgspec.json.encode(head))}.{_text(msgspec.json.encode(claims))}"
        return f"{signed}.{_text(self._signature(offered[0], signed.encode()))}"

    def _signature(self, algorithm: str, data: bytes) -> bytes:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding, utils

        if algorithm in ("EdDSA", "Ed25519"):
            return bytes(self._key.sign(data))
        sizes = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
        digest = sizes[algorithm[2:]]
        if algorithm.startswith("ES"):
            # JWS has both numbers at their full length (RFC 7518, section 3.4), not DER.
            length = (self._key.curve.key_size + 7) // 8
            numbers = utils.decode_dss_signature(self._key.sign(data, ec.ECDSA(digest)))
            return b"".join(number.to_bytes(length, "big") for number in numbers)
        pss = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
        way = pss if algorithm.startswith("PS") else padding.PKCS1v15()
        return bytes(self._key.sign(data, way, digest))


def read_key(path: str, id: str = "") -> AssertionKey:
    """Read a private key from a file that is readable by this user alone; raises LoginError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = os.path.expanduser(path)
    try:
        data, status = files.read(path, _MAX_KEY)
    except OSError as error:
        why = error.strerror or str(error)
        raise LoginError(f"the private key {path} cannot be read: {why}") from None
    mode = stat.S_IMODE(status.st_mode)
    if os.name == "posix" and mode & 0o077:
        raise LoginError(
            f"the private key {path} can be read by others (mode {mode:o}); run "
            f"`chmod 600 {path}`, and replace the key if others may have read it"
        )
    if os.name == "posix" and status.st_uid not in (os.geteuid(), 0):
        raise LoginError(f"the private key {path} belongs to another user")
    try:
        return AssertionKey(load_pem_private_key(data, None), id)
    except TypeError:
        raise LoginError(
            f"the private key {path} has a password, which Portico does not support; save it "
            "without one, readable by you alone"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise LoginError(f"{path} is not a private key in PEM format") from None


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
