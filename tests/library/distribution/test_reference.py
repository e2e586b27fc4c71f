"""References: which forms are read, how they are written back, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.library.distribution.distribution_error import InvalidReference
from portico.library.distribution.reference import OciReference, is_reference, parse_reference

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci://host.example/calc:1.0", OciReference("host.example", "calc", "1.0")),
        ("oci://host.example/a/b", OciReference("host.example", "a/b", "latest")),
        ("oci://localhost/calc", OciReference("localhost", "calc", "latest")),
        ("oci://127.0.0.1:5000/calc:x", OciReference("127.0.0.1:5000", "calc", "x")),
        ("oci://[::1]:5000/calc:x", OciReference("[::1]:5000", "calc", "x")),
        (f"oci://host.example/calc@{DIGEST}", OciReference("host.example", "calc", "", DIGEST)),
        (f"oci://h.example/calc:1@{DIGEST}", OciReference("h.example", "calc", "1", DIGEST)),
    ],
)
def test_a_reference_is_read_and_written_back(text: str, expected: OciReference) -> None:
    found = parse_reference(text)
    assert found == expected
    assert parse_reference(str(found)) == found


def test_a_package_is_looked_up_in_the_default_registry() -> None:
    found = parse_reference("acme:calc@1.0", "host.example/wasm")
    assert str(found) == "oci://host.example/wasm/acme/calc:1.0"
    assert parse_reference("acme:calc", "host.example").tag == "latest"


def test_a_package_without_a_default_registry_says_what_to_set() -> None:
    with pytest.raises(InvalidReference, match=r"set default = true in a \[registries\.NAME\]"):
        parse_reference("acme:calc@1.0")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("oci://calc:1.0", "names no host"),
        ("oci://acme/calc:1.0", "names no host"),
        ("oci:///calc", "names no host"),
        ("oci://user:secret@host.example/calc", "names no host"),
        ("oci://host.example:99999/calc", "names no host"),
        ("oci://host.example/calc:" + "t" * 200, "its tag is longer than 128"),
        ("oci://host.example/calc:a b", "its tag may have"),
        ("oci://host.example/Calc", "lower-case"),
        ("oci://host.example/../calc", "lower-case"),
        ("oci://host.example/a//b", "lower-case"),
        ("oci://host.example/" + "a" * 300, "lower-case"),
        ("oci://host.example/calc@sha256:abc", "is not a digest"),
        ("oci://host.example/calc@sha512:" + "a" * 128, "is not a digest"),
        ("calc", "neither oci://"),
        ("acme:calc@1.0/../x", "neither oci://"),
    ],
)
def test_a_wrong_reference_is_explained(text: str, why: str) -> None:
    with pytest.raises(InvalidReference, match=why) as caught:
        parse_reference(text, "host.example")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci://x", True),
        ("acme:calc", True),
        ("calc", False),
        ("file.py:app", True),
        ("./a:b", False),
    ],
)
def test_the_form_alone_tells_a_reference(text: str, expected: bool) -> None:
    assert is_reference(text) is expected


@given(st.text(max_size=60))
def test_no_text_fails_in_another_way(text: str) -> None:
    try:
        found = parse_reference(f"oci://{text}")
    except InvalidReference:
        return
    assert parse_reference(str(found)) == found
