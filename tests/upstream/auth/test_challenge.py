"""The header with which a server says that it wants a login."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.upstream.auth.challenge import Challenge, parse_challenge


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", Challenge()),
        ("Bearer", Challenge()),
        ('Basic realm="x"', Challenge()),
        ('bearer error="invalid_token"', Challenge(error="invalid_token")),
        (
            'Bearer realm="a, b", resource_metadata="https://x/y", scope="a b a"',
            Challenge("https://x/y", ("a", "b")),
        ),
        ('Basic realm="x", Bearer scope=read', Challenge(scopes=("read",))),
        ('Negotiate YWJj==, Bearer scope="a"', Challenge(scopes=("a",))),
        ('Bearer scope="a\\"b c \x1b[2J d\u202e"', Challenge(scopes=("c",))),
        ('Bearer scope="first", scope="second"', Challenge(scopes=("first",))),
        ('Bearer scope="open', Challenge()),
        (
            f'Bearer scope="{" ".join(map(str, range(51)))}"',
            Challenge(problem="51 scopes at once, more than 50"),
        ),
    ],
)
def test_the_bearer_challenge_is_found_among_others(header: str, found: Challenge) -> None:
    assert parse_challenge(header) == found


@given(st.text())
def test_any_text_is_read_to_its_end(header: str) -> None:
    assert isinstance(parse_challenge(f"Bearer {header}"), Challenge)
