"""Invisible characters, which people do not see but models and terminals read, as escapes.

These are format, private and control characters, line and paragraph separators, tags and
variation selectors. A joiner or a selector is kept where a script or an emoji needs it.
"""

import re
import unicodedata
from functools import cache

# The categories Cc (except tab and line feed), Cf, Co, Cs, Zl and Zp; tags, variation selectors,
# and letters without a glyph. A test compares this with the categories.
_SUSPECT = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    "\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_JOINERS = "\u200c\u200d"
_JOINING = (
    (0x0600, 0x109F),  # Arabic, Syriac, the scripts of India, Tibetan, Myanmar
    (0x1780, 0x18AF),  # Khmer, Mongolian
    (0x1A00, 0x1C7F),
    (0xA800, 0xABFF),
    (0xFB50, 0xFDFF),
    (0xFE70, 0xFEFC),
    (0x10A00, 0x11FFF),
    (0x1E900, 0x1E95F),
)
"""Scripts in which a joiner changes how a letter looks."""
_HAN = ((0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_VIRAMA = 9
_KEYCAP = "\u20e3"
_ALSO_EMOJI = "\u203c\u2049\u2139\u3030"


# `str.isprintable` accepts these: variation selectors and letters without a glyph, as UTF-8. Some
# prefixes also match harmless characters, which only costs a full check.
_PRINTABLE = (
    b"\xcd\x8f",
    b"\xe1\x85",
    b"\xe1\x9e",
    b"\xe1\xa0",
    b"\xe3\x85\xa4",
    b"\xef\xb8",
    b"\xef\xbe\xa0",
    b"\xf3\xa0",
)
_ESCAPED = (
    rb"\\(?:[bf]|r(?!\\n)|u(?:00[0189]|007f|00ad|034f|060[0-5]|061c|06dd|070f|089[01]|08e2"
    rb"|115f|1160|17b[45]|180|200[b-f]|202[89a-e]|206|3164|e|f[0-8]|fe0|feff|ffa0|fff[9ab]"
    rb"|db4|db[89a-f]|d80[4d]|d82f|d834|d[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..\\u)d[c-f]))"
)


def may_have_invisible(raw: bytes) -> bool:
    """False if this JSON has no invisible characters: a fast check with false positives."""
    if b"\x7f" in raw or (b"\\" in raw and _escaped().search(raw)):
        return True
    if raw.isascii():
        return False
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return True
    if text.isprintable() and not any(map(raw.__contains__, _PRINTABLE)):
        return False
    # Beside an escape, the neighbours of a joiner are not known until it is decoded.
    return bool(_suspect().search(text)) if b"\\" in raw else has_invisible(text)


def has_invisible(text: str) -> bool:
    """True if a text has invisible characters that it does not need."""
    return not _is_plain(text) and any(
        not _is_needed(text, found.start()) for found in _suspect().finditer(text)
    )


def sanitize_text(text: str) -> str:
    """Return the text with invisible characters as `\\u{...}`."""
    return text if _is_plain(text) else _suspect().sub(_written_out, text)


def sanitize_json(text: str) -> str:
    """Return JSON with invisible characters as JSON escapes, which keeps its values."""
    return text if _is_plain(text) else _suspect().sub(_as_json, text)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


@cache  # compiled on first use: it takes milliseconds, and most definitions do not need it
def _suspect() -> re.Pattern[str]:
    return re.compile(_SUSPECT)


@cache
def _escaped() -> re.Pattern[bytes]:
    return re.compile(_ESCAPED, re.IGNORECASE)


def _written_out(found: re.Match[str]) -> str:
    char = found.group()
    return char if _is_needed(found.string, found.start()) else f"\\u{{{ord(char):x}}}"


def _as_json(found: re.Match[str]) -> str:
    char = found.group()
    if _is_needed(found.string, found.start()):
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _is_needed(text: str, at: int) -> bool:
    """True if the neighbours of this character need it."""
    char = text[at]
    after = text[at + 1 : at + 2]
    if char == "\r":
        return after == "\n"
    if at == 0:
        return False
    if char in _JOINERS:
        return _joins(text, at, after)
    before = text[at - 1]
    if "\ufe00" <= char <= "\ufe02":
        return before >= "\x80" and unicodedata.category(before) in ("Lo", "Sm")
    if char in "\ufe0e\ufe0f":
        return _is_emoji(before) or (before in "0123456789#*" and after == _KEYCAP)
    if "\U000e0100" <= char <= "\U000e010f":
        return _within(before, _HAN)
    if "\u180b" <= char <= "\u180f" and char != "\u180e":
        return "\u1820" <= before <= "\u18aa"
    return False


def _joins(text: str, at: int, after: str) -> bool:
    before = text[at - 1]
    if unicodedata.combining(before) == _VIRAMA:
        return not _suspect().match(after)
    if not after:
        return False
    if text[at] == "\u200d" and _is_emoji(after):
        return _is_emoji(before) or (before == "\ufe0f" and at > 1 and _is_emoji(text[at - 2]))
    if not (_is_letter(before) and _is_letter(after)):
        return False
    return _within(before, _JOINING) or _within(after, _JOINING)


def _is_emoji(char: str) -> bool:
    if char in _ALSO_EMOJI:
        return True
    return char >= "\x80" and unicodedata.category(char) in ("So", "Sm", "Sk")


def _is_letter(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN" and not _suspect().match(char)


def _within(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= ord(char) <= high for low, high in ranges)
