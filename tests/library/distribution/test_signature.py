"""Signatures: which key, name and digest they hold for, and every way in which they do not."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from portico.library.distribution.distribution_error import DistributionError, Untrusted
from portico.library.distribution.keys import (
    fingerprint,
    new_key,
    private_key,
    public_key,
    public_key_file,
)
from portico.library.distribution.manifest import Descriptor, digest_of
from portico.library.distribution.signature import (
    ANNOTATION,
    PAYLOAD_TYPE,
    payload_for,
    signature_tag,
    signed,
    verified,
)

NAME = "host.example/calc"
DIGEST = digest_of(b"a manifest")
AT = "2026-01-01T00:00:00Z"


def layer(payload: bytes, signature: str) -> tuple[Descriptor, bytes]:
    about = {ANNOTATION: signature}
    return Descriptor(PAYLOAD_TYPE, digest_of(payload), len(payload), about), payload


def signed_layer(
    key: Any, repository: str = NAME, digest: str = DIGEST
) -> tuple[Descriptor, bytes]:
    payload = payload_for(repository, digest, AT)
    return layer(payload, signed(key, payload))


@pytest.mark.parametrize(
    "make", [lambda: ec.generate_private_key(ec.SECP256R1()), Ed25519PrivateKey.generate]
)
def test_a_signature_holds_for_its_key_name_and_digest(make: Any) -> None:
    key = make()
    other = ec.generate_private_key(ec.SECP256R1())
    keys = {"other": other.public_key(), "mine": key.public_key()}
    found = verified([signed_layer(key)], keys, NAME, DIGEST)
    assert (found.key, found.claimed_at) == ("mine", AT)
    both = [signed_layer(ec.generate_private_key(ec.SECP256R1())), signed_layer(key)]
    assert verified(both, keys, NAME, DIGEST).key == "mine"


def test_the_payload_is_the_one_that_cosign_reads() -> None:
    critical = json.loads(payload_for(NAME, DIGEST, AT))["critical"]
    assert critical == {
        "identity": {"docker-reference": NAME},
        "image": {"docker-manifest-digest": DIGEST},
        "type": "cosign container image signature",
    }
    assert signature_tag(DIGEST) == f"sha256-{DIGEST[7:]}.sig"


def test_a_signature_for_something_else_is_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    keys = {"mine": key.public_key()}
    payload = payload_for(NAME, DIGEST, AT)
    text = b'{"critical": {}}'
    other_kind = payload.replace(b"cosign container", b"another")
    for one, why in (
        (signed_layer(key, repository="host.example/other"), "for another name"),
        (signed_layer(key, repository="evil.example/calc"), "for another name"),
        (signed_layer(key, digest=digest_of(b"old")), "for another digest"),
        (signed_layer(ec.generate_private_key(ec.SECP256R1())), "by no key"),
        (signed_layer(Ed25519PrivateKey.generate()), "by no key"),
        (layer(payload, ""), "by no key"),
        (layer(payload, "not base64!"), "by no key"),
        (layer(text, signed(key, text)), "not a signature of a component"),
        (layer(other_kind, signed(key, other_kind)), "not a signature of a component"),
    ):
        with pytest.raises(Untrusted, match=why):
            verified([one], keys, NAME, DIGEST)
    with pytest.raises(Untrusted, match="not signed"):
        verified([], keys, NAME, DIGEST)


def test_a_tampered_payload_is_refused_before_it_is_read() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    about, payload = signed_layer(key)
    with pytest.raises(Untrusted, match="its digest is"):
        verified([(about, payload + b" ")], {"mine": key.public_key()}, NAME, DIGEST)


def test_a_name_may_carry_the_tag_or_digest_that_was_signed() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    keys = {"mine": key.public_key()}
    local = "127.0.0.1:5000/calc"
    for name in (local, f"{local}:1.0", f"{local}@{DIGEST}"):
        assert verified([signed_layer(key, name)], keys, local, DIGEST).key == "mine"


def test_a_new_key_is_private_and_is_not_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "mine.key")
    digest = new_key(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    key = private_key(path)
    assert fingerprint(key.public_key()) == fingerprint(public_key_file(f"{path}.pub")) == digest
    before = Path(path).read_bytes(), Path(f"{path}.pub").read_bytes()
    with pytest.raises(DistributionError, match="a key exists there"):
        new_key(path)
    assert (Path(path).read_bytes(), Path(f"{path}.pub").read_bytes()) == before


def test_a_key_that_others_may_read_is_refused_with_its_remedy(tmp_path: Path) -> None:
    path = str(tmp_path / "mine.key")
    new_key(path)
    os.chmod(path, 0o640)
    with pytest.raises(DistributionError, match=r"others may read.*chmod 600"):
        private_key(path)


def test_a_file_that_is_no_usable_key_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "key"
    rsa = generate_private_key(65537, 2048)
    pem, pkcs8 = form.Encoding.PEM, form.PrivateFormat.PKCS8
    locked = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        pem, pkcs8, form.BestAvailableEncryption(b"secret")
    )
    for data, why in (
        (b"", "not a private key"),
        (b"x" * 100_000, "too large"),
        (rsa.private_bytes(pem, pkcs8, form.NoEncryption()), "neither a P-256"),
        (locked, "has a password"),
    ):
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(DistributionError, match=why):
            private_key(str(path))
    with pytest.raises(DistributionError, match="not a public key"):
        public_key(b"nothing", "trust.keys.mine")
    with pytest.raises(DistributionError, match="cannot be read"):
        public_key_file(str(tmp_path / "missing"))
