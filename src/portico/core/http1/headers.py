"""Checks of the headers that a user sends with every request to a URL."""

import re

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_FRAMING = ("content-length", "transfer-encoding")


def header_problem(name: str, value: str) -> str:
    """Return why a header cannot be sent, without its (secret) value; empty if it can."""
    if not _NAME.fullmatch(name):
        return "the header name before the colon is not valid"
    if name.lower() in _FRAMING:
        return f"{name} differs for each request and cannot be set"
    if not _VALUE.fullmatch(value):
        return f"the value of {name} has characters that headers cannot contain"
    return ""
