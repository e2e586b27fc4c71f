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
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
MAX_SCOPES = 50
"""More scopes than this are refused: no person could judge such a list."""
INSUFFICIENT_SCOPE = "insufficient_scope"


class Challenge(Struct, frozen=True):
    """The parts of a Bearer challenge that a login needs."""

    resource_metadata: str = ""
    scopes: tuple[str, ...] = ()
    error: str = ""
    problem: str = ""
    """Why its scopes are not requested; empty if they can be."""


def parse_challenge(header: str) -> Challenge:
    """Return the Bearer challenge in a header; an empty one if there is none."""
    problem = f"a challenge longer than {MAX_CHALLENGE} bytes"
    problem = problem if len(header) > MAX_CHALLENGE else ""
    for scheme, params in all_challenges(header):
        if scheme == "bearer":
            scopes = _scopes(params.get("scope", ""))
            if len(scopes) > MAX_SCOPES:
                problem = f"{len(scopes)} scopes at once, more than {MAX_SCOPES}"
            return Challenge(
                params.get("resource_metadata", ""),
                () if problem else scopes,
                params.get("error", ""),
                problem,
            )
    return Challenge(problem=problem)


def _scopes(text: str) -> tuple[str, ...]:
    """Return the valid scopes of a list (RFC 6749, section 3.3); messages quote them."""
    return tuple(dict.fromkeys(filter(_SCOPE.fullmatch, text.split())))


def all_challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Return each scheme in lower case, with its parameters."""
    header = header[:MAX_CHALLENGE]
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
