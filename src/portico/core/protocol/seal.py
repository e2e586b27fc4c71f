"""Seals data that passes through a client and must come back unread and unchanged.

ChaCha20-Poly1305 of `cryptography`, with the binding as associated data. Key, nonce and time are
passed in.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import blake2b
from typing import Any

import msgspec

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ModuleNotFoundError:
    raise ImportError(
        "the state of a question is sealed with a package that is not installed: "
        "run `pip install cryptography`"
    ) from None

from portico.core.model.message import Request

KEY_SIZE = 32
NONCE_SIZE = 12
_FORMAT = "p2."
"""Begins every text of this format. Its point is in no text of an older one, which was base64."""
_UNBOUND = ("_meta", "inputResponses", "requestState")


class SealBroken(Exception):
    """The text was not sealed with this key and binding, or has expired."""


class Seal:
    """One secret key; seals JSON values that expire and are bound to a purpose."""

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_SIZE:
            raise ValueError(f"the key of a seal must have at least {KEY_SIZE} bytes")
        derived = HKDF(SHA256(), length=KEY_SIZE, salt=None, info=b"portico seal").derive(key)
        self._cipher = ChaCha20Poly1305(derived)

    def close(self, value: Any, *, binding: bytes, expires: float, nonce: bytes) -> str:
        """Seal a value; it opens only with the same binding, until `expires`."""
        plain = msgspec.json.encode([expires, value])
        sealed = nonce + self._cipher.encrypt(nonce, plain, binding)
        return _FORMAT + urlsafe_b64encode(sealed).decode()

    def open(self, text: str, *, binding: bytes, now: float) -> Any:
        """Return the sealed value, or raise SealBroken."""
        encoded = text.removeprefix(_FORMAT)
        try:
            raw = urlsafe_b64decode(encoded.encode("ascii"))
        except (Base64Error, ValueError):
            raise SealBroken("it is not a sealed text") from None
        if urlsafe_b64encode(raw).decode() != encoded or len(raw) <= NONCE_SIZE:
            raise SealBroken("it is not a sealed text")  # a value has only one encoding
        if not text.startswith(_FORMAT):
            raise SealBroken("it has expired")  # sealed by an older Portico
        try:
            plain = self._cipher.decrypt(raw[:NONCE_SIZE], raw[NONCE_SIZE:], binding)
        except InvalidTag:
            why = "it was changed, or sealed for another client or request"
            raise SealBroken(why) from None
        expires, value = msgspec.json.decode(plain)
        if now > expires:
            raise SealBroken("it has expired")
        return value


def binding(request: Request, principal: str) -> bytes:
    """Return the binding of a state to one principal and one request, in all its rounds."""
    params = msgspec.json.decode(request.params or b"{}", type=dict[str, Any])
    salient = {key: value for key, value in params.items() if key not in _UNBOUND}
    digest = blake2b(msgspec.json.encode(salient, order="sorted"), digest_size=32).digest()
    return b"\0".join((principal.encode(), request.method.encode(), digest))
