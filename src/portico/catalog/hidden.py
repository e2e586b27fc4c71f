"""Characters that a person does not see but a model or a terminal reads: shown, not obeyed."""

import re
from functools import cache
from typing import Any

import msgspec

FLAG = "portico/hidden"
"""In a definition's `_meta`: it had characters that are not to be seen."""

# Controls but tab and line ends; soft hyphen, zero width, bidi and other format characters;
# variation selectors beyond the one that colours emoji; tags, with which text can be smuggled.
_HIDDEN = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_ESCAPED = re.compile(
    rb"\\u(?:00[01]|007f|00[89]|00ad|034f|061c|115f|1160|17b[45]|180|20[0-9]|3164|fe0|feff"
    rb"|ffa0|fff[9ab]|db4[0-3])",
    re.IGNORECASE,
)
_TEXTS = ("name", "title", "description")


def is_hidden(text: str) -> bool:
    """True if there is more in it than is to be seen."""
    return not (text.isascii() and text.isprintable()) and bool(_hidden().search(text))


def revealed(text: str) -> str:
    """The same, with every hidden character written out."""
    if text.isascii() and text.isprintable():
        return text
    return _hidden().sub(lambda found: f"\\u{{{ord(found.group()):x}}}", text)


@cache  # not at once: it takes milliseconds, and most definitions need none of it
def _hidden() -> re.Pattern[str]:
    return re.compile(_HIDDEN)


def revealed_definition(raw: bytes) -> bytes:
    """A definition whose texts are what they seem; the very same bytes if they were already."""
    if raw.isascii():
        if _ESCAPED.search(raw) is None:
            return raw
    elif _ESCAPED.search(raw) is None and not is_hidden(raw.decode("utf-8", "replace")):
        return raw
    try:
        definition = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return raw
    shown = _shown(definition)
    if not isinstance(shown, dict) or shown == definition:
        return raw
    meta = shown.get("_meta")
    shown["_meta"] = {**(meta if isinstance(meta, dict) else {}), FLAG: True}
    return msgspec.json.encode(shown)


def _shown(value: Any, key: str = "") -> Any:
    """What a model reads of it: names, titles and descriptions, wherever they stand."""
    if isinstance(value, dict):
        return {key: _shown(of, key) for key, of in value.items()}
    if isinstance(value, list):
        return [_shown(of, key) for of in value]
    return revealed(value) if key in _TEXTS and isinstance(value, str) else value
