"""Signatures in cosign's key-based format: made, and verified before anything is unpacked.

A signature is an artifact of its own beside the component, under the tag `sha256-DIGEST.sig`. Each
of its layers is a payload that names the repository and the digest; an annotation carries the
signature of the payload's bytes. The time in it is the signer's claim: it is shown, never trusted.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from portico.library.distribution.distribution_error import Untrusted
from portico.library.distribution.manifest import Descriptor, check_digest

PAYLOAD_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
ANNOTATION = "dev.cosignproject.cosign/signature"
MAX_PAYLOAD = 64 * 1024
MAX_SIGNATURES = 32
_KIND = "cosign container image signature"


class _Identity(Struct):
    reference: str = field(name="docker-reference", default="")


class _Image(Struct):
    digest: str = field(name="docker-manifest-digest", default="")


class _Critical(Struct):
    identity: _Identity
    image: _Image
    type: str = ""


class _Payload(Struct):
    critical: _Critical
    optional: dict[str, Any] | None = None


class SignedBy(Struct, frozen=True):
    """A signature that holds."""

    key: str
    """The name of the trusted key."""
    claimed_at: str = ""
    """The time that the signer gave; not trusted."""


_decode = msgspec.json.Decoder(_Payload).decode


def signature_tag(digest: str) -> str:
    """Return the tag under which the signatures of a digest are stored."""
    return digest.replace(":", "-") + ".sig"


def payload_for(repository: str, digest: str, at: str) -> bytes:
    """Return the bytes to sign."""
    return msgspec.json.encode(
        {
            "critical": {
                "identity": {"docker-reference": repository},
                "image": {"docker-manifest-digest": digest},
                "type": _KIND,
            },
            "optional": {"created": at},
        }
    )


def signed(private_key: Any, payload: bytes) -> str:
    """Return the signature of a payload, as the annotation carries it."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if isinstance(private_key, Ed25519PrivateKey):
        raw = private_key.sign(payload)
    else:
        raw = private_key.sign(payload, ECDSA(hashes.SHA256()))
    return base64.b64encode(raw).decode()


def is_signed_by(public_key: Any, payload: bytes, signature: str) -> bool:
    """True if this key made the signature of the payload."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = base64.b64decode(signature, validate=True)
        if isinstance(public_key, Ed25519PublicKey):
            public_key.verify(raw, payload)
        else:
            public_key.verify(raw, payload, ECDSA(hashes.SHA256()))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def verified(
    found: Iterable[tuple[Descriptor, bytes]],
    keys: Mapping[str, Any],
    repository: str,
    digest: str,
) -> SignedBy:
    """Return the first signature by one of these keys for this repository and digest.

    `found` has each layer of the signature's manifest with its payload. Raises Untrusted with the
    reason why the last one did not hold.
    """
    why = "it is not signed"
    for layer, payload in found:
        check_digest(payload, layer.digest, "a signature's payload")
        signature = layer.annotations.get(ANNOTATION, "")
        name = next((n for n, key in keys.items() if is_signed_by(key, payload, signature)), None)
        if name is None:
            why = "it is signed, but by no key that [trust] allows for it"
            continue
        claim = _claim(payload)
        if claim is None:
            why = f"the key {name} signed a text that is not a signature of a component"
        elif claim.critical.image.digest != digest:
            why = f"the signature of {name} is for another digest"
        elif not _is_same_name(claim.critical.identity.reference, repository):
            other = claim.critical.identity.reference[:120]
            why = f"the signature of {name} is for another name, {other!r}"
        else:
            return SignedBy(name, _time_in(claim))
    raise Untrusted(why)


def _claim(payload: bytes) -> _Payload | None:
    try:
        found = _decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.critical.type == _KIND else None


def _is_same_name(reference: str, repository: str) -> bool:
    """Compare without a tag or digest, which cosign may append to the name."""
    name = reference.partition("@")[0]
    head, slash, tail = name.rpartition("/")
    return f"{head}{slash}{tail.partition(':')[0]}" == repository


def _time_in(claim: _Payload) -> str:
    at = (claim.optional or {}).get("created", "")
    return at[:40] if isinstance(at, str) else ""
