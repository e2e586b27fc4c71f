"""The grants that a bundle requires for a sandboxed component, the same wherever it runs."""

import re

from portico.core.config.component_grants import InvalidGrant, add_grants
from portico.core.config.expand import Sources
from portico.core.model.wording import printable
from portico.upstream.process.environment import looks_secret

_ELSEWHERE = r"\$\{(?:(?!:-)[^}])+\}|file:(?!//).+|keyring:.+"
"""A value that is not in the bundle: not even as a default."""
_FROM_ROOT = ("/", "~/", "${")


def check_wanted(line: str) -> None:
    """Raise InvalidGrant unless this grant may be in a bundle."""
    key, _, value = line.partition("=")
    name, is_set, text = value.partition("=")
    if key == "files":
        _check_folder(value)
        return  # it need not exist here
    if key in ("env", "config", "secrets") and is_set:
        is_secret = key == "secrets" or looks_secret(name)
        if is_secret and not re.fullmatch(_ELSEWHERE, text, re.DOTALL):
            what = f"{key}={printable(name)[:80]}: its value would be in the bundle"
            raise InvalidGrant(f"{what}; write ${{NAME}}, keyring:NAME or file:PATH as the value")
        text = "x"  # variables and files need not exist here
    elif key == "env":
        text = "x"
    given = f"{key}={name}={text}" if text else line
    add_grants([given], Sources({}, "/"))


def _check_folder(value: str) -> None:
    # A relative one would be another folder wherever it is run.
    if not value.startswith(_FROM_ROOT):
        what = f"files={printable(value)[:80]}: depends on the folder in which it is run"
        raise InvalidGrant(f"{what}; write the whole path, or begin with ~/ or ${{NAME}}/")
