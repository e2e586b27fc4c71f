"""Terms of a text: identifiers split, lower-cased and stemmed, without stop words."""

import re
from functools import lru_cache
from unicodedata import normalize

MAX_TEXT = 10_000
"""Characters of one text that are read; a description is shorter."""

_WORD = re.compile(r"[^\W_]+")
_LETTERS = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+"
# Scripts without spaces between words; pairs of characters replace words, as is usual.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PART = re.compile(rf"{_LETTERS}|\d+")
_FOREIGN_PART = re.compile(rf"\d+|[{_UNSPACED}]+|[^\W\d_{_UNSPACED}]+")
_TWO = re.compile(rf"(?:{_LETTERS})[A-Z][a-z]+|[a-z]+[A-Z]+")
_RUN = re.compile(rf"[{_UNSPACED}]+")

# Grammar and filler of requests; `get` begins too many names to distinguish them.
_STOP = """
    a about also am an and any are as at be been but by can could d did do does don for from get
    give had has have he hello help her hey hi his how i id if im in into is it its ive just know
    let like ll looking m me my need of on or our please provide re s she should so some such t
    tell than that the their them then there these they this those to us use used using ve want
    was we were what when where which while who will with would you your
"""
STOP = frozenset(_STOP.split())
_VOWELS = frozenset("aeiouy")


def terms(text: str) -> list[str]:
    """Return the terms of a text, in order and with repeats; GitHub is git, hub and github."""
    found: list[str] = []
    for word in _words(text):
        found += _written(word)
    return found


def parts(text: str) -> list[str]:
    """Return the parts of a text as terms, each once: GitHub is git and hub."""
    return [*{part: None for word in _words(text) for part in _parts(word)}]


def _words(text: str) -> list[str]:
    text = text[:MAX_TEXT]
    # The same letter may be written in several ways: wide, joined, or with its accent apart.
    return _WORD.findall(text if text.isascii() else normalize("NFKC", text))


@lru_cache(maxsize=20_000)
def _written(word: str) -> tuple[str, ...]:
    found = _parts(word)
    whole = word.lower()
    return (*found, stem(whole)) if _TWO.fullmatch(word) and whole not in STOP else found


def _parts(word: str) -> tuple[str, ...]:
    found: list[str] = []
    split = _PART if word.isascii() else _FOREIGN_PART
    for part in map(str.lower, split.findall(word)):
        if _RUN.match(part):
            found += [part[at : at + 2] for at in range(max(1, len(part) - 1))]
        elif part not in STOP:
            found.append(stem(part))
    return tuple(found)


def stem(word: str) -> str:
    """Remove the endings of plural, -ing and -ed, as the first steps of Porter's stemmer do."""
    word = _singular(word)
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 2 and not _VOWELS.isdisjoint(rest):
            doubled = rest[-1] == rest[-2] and rest[-1] not in "lsz"
            word = rest[:-1] if doubled else rest
            break
    if len(word) > 4 and word.endswith("e"):
        return word[:-1]  # as "making" became "mak"
    if len(word) > 3 and word.endswith("y"):
        return word[:-1] + "i"
    return word


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    return word[:-1]
