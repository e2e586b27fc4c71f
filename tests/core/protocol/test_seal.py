"""Sealed state: unread, unchanged, for one purpose and for a time."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.protocol.seal import Seal, SealBroken
from tests.core.protocol.test_codec import JSON_VALUES

SEAL = Seal(b"k" * 32)
NONCE = b"n" * 12


@given(value=JSON_VALUES, binding=st.binary(max_size=40))
def test_what_was_sealed_opens_again(value: Any, binding: bytes) -> None:
    text = SEAL.close(value, binding=binding, expires=100, nonce=NONCE)
    assert SEAL.open(text, binding=binding, now=100) == value


@given(place=st.integers(min_value=0), bit=st.integers(0, 5))
def test_no_change_goes_unnoticed(place: int, bit: int) -> None:
    text = SEAL.close({"user": "ana"}, binding=b"b", expires=100, nonce=NONCE)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    place = len("p2.") + place % len(text.rstrip("=").removeprefix("p2."))
    changed = alphabet[alphabet.index(text[place]) ^ (1 << bit)]
    with pytest.raises(SealBroken):
        SEAL.open(text[:place] + changed + text[place + 1 :], binding=b"b", now=0)


@given(st.text(max_size=200))
def test_no_text_of_somebody_elses_opens(text: str) -> None:
    with pytest.raises(SealBroken):
        SEAL.open(text, binding=b"b", now=0)


def test_it_expires_is_bound_and_needs_its_own_key() -> None:
    text = SEAL.close(1, binding=b"ana", expires=100, nonce=NONCE)
    with pytest.raises(SealBroken, match="expired"):
        SEAL.open(text, binding=b"ana", now=100.1)
    with pytest.raises(SealBroken):
        SEAL.open(text, binding=b"bob", now=0)
    with pytest.raises(SealBroken):
        Seal(b"K" * 32).open(text, binding=b"ana", now=0)


def test_a_state_of_an_older_portico_has_expired() -> None:
    before = (  # {"user": "ana"}, sealed with this key and binding until 100
        "bm5ubm5ubm5ubm5ubm5ubqFBhv44vxSOOOL6Ce31OifLiLyKIilAWoP_"
        "NtFAaCBIq-_WJzHyVAVPB1AXYONqutChY1M="
    )
    with pytest.raises(SealBroken, match="it has expired"):
        SEAL.open(before, binding=b"b", now=0)


@given(cut=st.integers(0, 200))
def test_a_text_that_was_cut_is_refused(cut: int) -> None:
    text = SEAL.close({"user": "ana"}, binding=b"b", expires=100, nonce=NONCE)
    with pytest.raises(SealBroken):
        SEAL.open(text[: cut % len(text)], binding=b"b", now=0)


def test_a_sealed_text_opens_with_the_cipher_of_the_standard() -> None:
    """RFC 8439, with a key by RFC 5869: whoever has the key can open it with any library."""
    from base64 import urlsafe_b64decode

    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    text = SEAL.close({"user": "ana"}, binding=b"b", expires=100, nonce=NONCE)
    raw = urlsafe_b64decode(text.removeprefix("p2."))
    key = HKDF(SHA256(), length=32, salt=None, info=b"portico seal").derive(b"k" * 32)
    assert raw[:12] == NONCE
    plain = ChaCha20Poly1305(key).decrypt(NONCE, raw[12:], b"b")
    assert json.loads(plain) == [100, {"user": "ana"}]


def test_nothing_of_the_value_can_be_read() -> None:
    from base64 import urlsafe_b64decode

    text = SEAL.close({"secret": "canary"}, binding=b"b", expires=100, nonce=NONCE)
    assert b"canary" not in urlsafe_b64decode(text.removeprefix("p2."))
