"""Invisible characters: which they are, and where a text needs them."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog.sanitize import (
    has_invisible,
    may_have_invisible,
    sanitize_json,
    sanitize_text,
)

_CATEGORIES = ("Cf", "Co", "Cs", "Zl", "Zp", "Cc")
_TAGS = range(0xE0000, 0xE0080)
_NEEDED = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
    "PDF\u200c\u0647\u0627",  # Persian after Latin
    "\u06f2\u06f0\u06f2\u06f0\u200c\u0647\u0627",  # Persian after digits
    "\u0915\u094d\u200d\u0937",  # Hindi, joined
    "\u0915\u094d\u200c\u0937",  # Hindi, not joined
    "\u0915\u094d\u200d",  # Hindi, half a letter at the end
    "\u0dc1\u0dca\u200d\u0dbb\u0dd3",  # Sinhala
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",  # a family
    "\U0001f469\U0001f3fd\u200d\U0001f4bb",  # a skin tone
    "\U0001f3f3\ufe0f\u200d\U0001f308",  # a rainbow flag
    "\u2764\ufe0f\u200d\U0001f525",  # a heart on fire
    "\U0001f642\u200d\u2194\ufe0f",  # a head shaking
    "\U0001f441\ufe0f\u200d\U0001f5e8\ufe0f",  # an eye in a bubble
    "\u260e\ufe0f \u260e\ufe0e \u00a9\ufe0f",  # telephones
    "\u203c\ufe0f \u2139\ufe0f \u3030\ufe0f",  # marks
    "1\ufe0f\u20e3 #\ufe0f\u20e3",  # keycaps
    "\u845b\U000e0100\u57ce",  # a variant of a Han character
    "\u1830\u180b\u1822",  # Mongolian
    "line one\nline two\r\n\tindented",  # lines
    "\u00e9 e\u0301 \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u0e44\u0e17\u0e22 \u2229\ufe00",
]


def test_every_character_of_a_hidden_category_is_written_out() -> None:
    for code in range(0x110000):
        char = chr(code)
        if char in "\n\t" or not (unicodedata.category(char) in _CATEGORIES or code in _TAGS):
            continue
        for text in (char, f"a{char}b", f" {char} ", char * 2):
            assert sanitize_text(text) == text.replace(char, f"\\u{{{code:x}}}"), hex(code)
            assert has_invisible(text)


@pytest.mark.parametrize("text", _NEEDED)
def test_what_a_script_or_an_emoji_needs_stays(text: str) -> None:
    assert sanitize_text(text) == text
    assert sanitize_json(text) == text
    assert not has_invisible(text)


@pytest.mark.parametrize(
    "text",
    [
        "pass\u200dword",
        "a\u200cb",
        "\u0645\u200c\u200c\u200d\u062e",
        "\u200c\u0645",
        "\u0645\u200c",
        "\u65e5\u200d\u672c",
        "\U0001f469\u200d\u200d\U0001f4bb",
        "\U0001f469\u200da",
        "a\ufe0f",
        "1\ufe0f",
        "\u260e\ufe0f\ufe0f",
        "a\ufe01b\ufe02",
        "\u845b\U000e0110",
        "\u845b\U000e0100\U000e0101",
        "a\U000e0100",
        "\U0001f3f4\U000e0067\U000e007f",
        "bare\rreturn",
        "\u3164",
        "a\u034fb",
    ],
)
def test_a_joiner_or_selector_that_nothing_needs_is_written_out(text: str) -> None:
    clean = sanitize_text(text)
    assert has_invisible(text)
    assert "\\u{" in clean
    assert not has_invisible(clean)


@given(st.text())
def test_nothing_hidden_is_left_and_what_is_shown_stays(text: str) -> None:
    clean = sanitize_text(text)
    assert not has_invisible(clean)
    assert sanitize_text(clean) == clean
    assert (clean == text) is not has_invisible(text)


_ODD = st.sampled_from(
    "\n\u0645\u200b\u200d\ufe0f\ufe01\U000e0100\U000e0041\ue000\x7f\x00\xad\u3164\u034f"
)


@given(st.text(st.characters() | _ODD), st.booleans())
def test_the_quick_look_misses_nothing(text: str, ascii: bool) -> None:
    raw = json.dumps(text, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    assert may_have_invisible(raw) or not has_invisible(text)


def test_the_quick_look_misses_no_character_alone() -> None:
    for code in range(0x110000):
        if has_invisible(chr(code)):
            for ascii in (True, False):
                raw = json.dumps(chr(code), ensure_ascii=ascii).encode("utf-8", "surrogatepass")
                assert may_have_invisible(raw), hex(code)


@given(st.text(st.characters(codec="utf-8")))
def test_json_with_escapes_says_the_same(text: str) -> None:
    raw = json.dumps(text, ensure_ascii=False)
    assert json.loads(sanitize_json(raw)) == text
    assert not has_invisible(sanitize_json(raw))
