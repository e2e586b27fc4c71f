"""Sealed state: unread, unchanged, for one purpose and for a time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.protocol.seal import Seal, SealBroken
from tests.protocol.test_codec import JSON_VALUES

SEAL = Seal(b"k" * 32)
NONCE = b"n" * 16


@given(value=JSON_VALUES, binding=st.binary(max_size=40))
def test_what_was_sealed_opens_again(value: Any, binding: bytes) -> None:
    text = SEAL.close(value, binding=binding, expires=100, nonce=NONCE)
    assert SEAL.open(text, binding=binding, now=100) == value


@given(place=st.integers(min_value=0), bit=st.integers(0, 5))
def test_no_change_goes_unnoticed(place: int, bit: int) -> None:
    text = SEAL.close({"user": "ana"}, binding=b"b", expires=100, nonce=NONCE)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    place %= len(text.rstrip("="))
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


def test_nothing_of_the_value_can_be_read() -> None:
    from base64 import urlsafe_b64decode

    text = SEAL.close({"secret": "canary"}, binding=b"b", expires=100, nonce=NONCE)
    assert b"canary" not in urlsafe_b64decode(text)
