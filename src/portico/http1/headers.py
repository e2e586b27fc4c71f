"""The headers that a user wants sent with every request to a URL."""

import re

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_FRAMING = ("content-length", "transfer-encoding")


def unfit_header(name: str, value: str) -> str:
    """Why a header cannot be sent, without its value, which may be a secret; empty if it can."""
    if not _NAME.fullmatch(name):
        return "what is before its colon is no name of a header"
    if name.lower() in _FRAMING:
        return f"{name} is another one for each request"
    if not _VALUE.fullmatch(value):
        return f"the value of {name} has characters that no header can carry"
    return ""
