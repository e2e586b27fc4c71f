"""Facts in the text of a tool's result that its structured content lacks: some clients give a model
only the one, some only the other."""

import re
from collections.abc import Iterator
from typing import Any

_SECONDS = re.compile(r"(?<=\d) s\b")
"""A unit that keys end with."""
_WORD = re.compile(r"""[^\s"'`,;:?!(){}\[\]|*#]+""")
_AS_KEYS = {
    "tasks?": "running",
    "of": "server",
    "unsupervised": "supervised",
    "left of": "left",
    "on average": "seconds",
    "waited": "queue",
    "started in": "start",
    "was silent for": "first_update",
    "worked": "turn",
}
"""Words of a text, and the keys that say the same."""


def untold(result: dict[str, Any]) -> list[str]:
    """The words of a result's text that are not in its structured content; none if it has no
    structured content, since every client shows the text then."""
    if "structuredContent" not in result:
        return []
    told = set(_words(result["structuredContent"]))
    text = _SECONDS.sub("", "\n".join(block["text"] for block in result["content"]))
    for words, key in _AS_KEYS.items():
        if key in told:
            text = re.sub(rf"(?<!\S){words}(?=[\s,;:)]|$)", " ", text)
    return [word for word in _split(text) if word not in told]


def _split(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        yield word.rstrip(".…")


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from (key, *key.split("_"), *_words(one))
    elif isinstance(value, list):
        for one in value:
            yield from _words(one)
    elif isinstance(value, str):
        yield from _split(value)
    elif isinstance(value, bool) or value is None:
        yield str(value).lower() if value is not None else "null"
    else:
        yield from (str(value), f"{value:g}")
