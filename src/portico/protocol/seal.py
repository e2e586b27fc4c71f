"""Seals data that passes through a client and must come back unread and unchanged.

Encrypt-then-MAC from keyed BLAKE2b alone: a keystream in counter mode under one derived key, a
tag over nonce, binding and ciphertext under another. Key, nonce and time are passed in.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hmac import compare_digest
from typing import Any

import msgspec

from portico.model.digest import blake2b
from portico.model.message import Request

KEY_SIZE = 32
NONCE_SIZE = 16
_TAG_SIZE = 32
_BLOCK = 64
_UNBOUND = ("_meta", "inputResponses", "requestState")


class SealBroken(Exception):
    """The text was not sealed with this key and binding, or has expired."""


class Seal:
    """One secret key; seals JSON values that expire and are bound to a purpose."""

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_SIZE:
            raise ValueError(f"the key of a seal must have at least {KEY_SIZE} bytes")
        master = blake2b(key, digest_size=64, person=b"portico seal").digest()
        self._cipher_key, self._tag_key = master[:32], master[32:]

    def close(self, value: Any, *, binding: bytes, expires: float, nonce: bytes) -> str:
        """Seal a value; it opens only with the same binding, until `expires`."""
        plain = msgspec.json.encode([expires, value])
        body = self._stream(nonce, plain)
        return urlsafe_b64encode(nonce + self._tag(nonce, binding, body) + body).decode()

    def open(self, text: str, *, binding: bytes, now: float) -> Any:
        """Return the sealed value, or raise SealBroken."""
        try:
            raw = urlsafe_b64decode(text.encode("ascii"))
        except (Base64Error, ValueError):
            raise SealBroken("it is not a sealed text") from None
        if urlsafe_b64encode(raw).decode() != text:  # a value has only one encoding
            raise SealBroken("it is not a sealed text")
        nonce, tag = raw[:NONCE_SIZE], raw[NONCE_SIZE : NONCE_SIZE + _TAG_SIZE]
        body = raw[NONCE_SIZE + _TAG_SIZE :]
        if not compare_digest(tag, self._tag(nonce, binding, body)):
            raise SealBroken("it was changed, or sealed for another client or request")
        expires, value = msgspec.json.decode(self._stream(nonce, body))
        if now > expires:
            raise SealBroken("it has expired")
        return value

    def _stream(self, nonce: bytes, data: bytes) -> bytes:
        stream = b"".join(
            blake2b(nonce + n.to_bytes(8, "big"), key=self._cipher_key).digest()
            for n in range((len(data) + _BLOCK - 1) // _BLOCK)
        )[: len(data)]
        mixed = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
        return mixed.to_bytes(len(data), "big")

    def _tag(self, nonce: bytes, binding: bytes, body: bytes) -> bytes:
        framed = len(binding).to_bytes(8, "big") + binding + nonce + body
        return blake2b(framed, key=self._tag_key, digest_size=_TAG_SIZE).digest()


def binding(request: Request, principal: str) -> bytes:
    """Return the binding of a state to one principal and one request, in all its rounds."""
    params = msgspec.json.decode(request.params or b"{}", type=dict[str, Any])
    salient = {key: value for key, value in params.items() if key not in _UNBOUND}
    digest = blake2b(msgspec.json.encode(salient, order="sorted"), digest_size=32).digest()
    return b"\0".join((principal.encode(), request.method.encode(), digest))
