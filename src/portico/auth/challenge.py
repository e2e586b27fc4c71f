"""The challenge of a server that refused a request: WWW-Authenticate (RFC 9110, section 11.6.1)."""

import re

from msgspec import Struct

MAX_CHALLENGE = 16 * 1024
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAM = re.compile(rf'({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))')
_SCHEME = re.compile(rf"({_WORD})(?=\s|,|$)")
_BETWEEN = re.compile(r"[\s,]*")
_OPAQUE = re.compile(r"\s+[0-9A-Za-z._~+/-]+=*(?=\s*(?:,|$))")
"""The credentials of a scheme without parameters, such as Negotiate."""
INSUFFICIENT_SCOPE = "insufficient_scope"


class Challenge(Struct, frozen=True):
    """The parts of a Bearer challenge that a login needs."""

    resource_metadata: str = ""
    scopes: tuple[str, ...] = ()
    error: str = ""


def parse_challenge(header: str) -> Challenge:
    """Return the Bearer challenge in a header; an empty one if there is none."""
    for scheme, params in _challenges(header[:MAX_CHALLENGE]):
        if scheme == "bearer":
            return Challenge(
                params.get("resource_metadata", ""),
                tuple(dict.fromkeys(params.get("scope", "").split())),
                params.get("error", ""),
            )
    return Challenge()


def _challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while at < len(header):
        between = _BETWEEN.match(header, at)
        at = between.end() if between else at
        param = _PARAM.match(header, at)
        if param is not None and found:
            quoted = re.sub(r"\\(.)", r"\1", param[2]) if param[2] is not None else param[3]
            found[-1][1].setdefault(param[1].lower(), quoted)
            at = param.end()
            continue
        scheme = _SCHEME.match(header, at)
        if scheme is None:
            break
        found.append((scheme[1].lower(), {}))
        opaque = _OPAQUE.match(header, scheme.end())
        at = opaque.end() if opaque else scheme.end()
    return found
