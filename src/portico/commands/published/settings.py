"""The settings of a published server, and the texts that their values are filled into."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from portico.core.config.expand import is_reference
from portico.core.documents.problems import quoted
from portico.core.model.errors import PorticoError

Values = Mapping[str, tuple[str, ...]]
"""The values of each setting; none for one that is not set."""
_NOT_IN_NAME = re.compile(r"[^A-Z0-9]+")


class PublishedError(PorticoError):
    """A published server cannot be added, for the reason in the message."""


class Setting(Struct, frozen=True, kw_only=True):
    """A value that a person gives, or that has a default."""

    key: str
    title: str = ""
    kind: str = "string"
    """`string`, `number`, `boolean`, `file` or `directory`."""
    is_required: bool = False
    is_secret: bool = False
    is_list: bool = False
    default: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    variable: str = ""
    """The variable that a secret is read from; empty for one named after the server."""

    @property
    def is_missing(self) -> bool:
        """True if a person has to give its value; a secret is referred to instead."""
        return self.is_required and not self.is_secret and not self.default

    def given(self, values: Iterable[str]) -> tuple[str, ...]:
        """Check the values that a person gave; raises PublishedError."""
        found = tuple(values)
        if len(found) > 1 and not self.is_list:
            raise PublishedError(f"{self.key} takes one value; give --set {self.key}=... once")
        return tuple(map(self._checked, found))

    def _checked(self, value: str) -> str:
        if is_reference(value):
            return value
        if self.choices and value not in self.choices:
            raise PublishedError(f"{self.key} must be one of {', '.join(self.choices)}")
        if self.kind == "boolean" and value not in ("true", "false"):
            raise PublishedError(f"{self.key} must be true or false")
        if self.kind == "number" and not re.fullmatch(r"-?\d+(\.\d+)?", value):
            raise PublishedError(f"{self.key} must be a number, not {quoted(value)}")
        return value

    def reference(self, server: str) -> str:
        """The reference that the config has for a secret, whose value it must not contain."""
        made = _NOT_IN_NAME.sub("_", f"{server}_{self.key}".upper()).strip("_")
        return f"${{{self.variable or made}}}"


def filled(text: str, references: "re.Pattern[str]", defaults: Values, given: Values) -> str | None:
    """Replace the references in a publisher's text; None if the text is only one without a value.

    A publisher must not read the variables, files or keyring of the person: only values that the
    person gave may contain references of the config. Raises PublishedError.
    """
    known = {**defaults, **given}
    whole = references.fullmatch(text)
    if whole is not None and whole[1] in known and not known[whole[1]]:
        return None

    def put(match: "re.Match[str]") -> str:
        return ",".join(known[match[1]]) if match[1] in known else match[0]

    def put_own(match: "re.Match[str]") -> str:
        return "x" if given.get(match[1]) else put(match)

    if is_reference(references.sub(put_own, text)):
        raise PublishedError(
            f"{quoted(text)} would read a variable, file or keyring entry of yours; "
            "add the server by its command, if you trust it"
        )
    return references.sub(put, text)


# Readers of untrusted JSON: each raises PublishedError with the place of what is wrong.


def table(at: str, value: Any) -> dict[str, Any]:
    """Return an object; an absent one is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PublishedError(f"{at} must be an object")
    return value


def rows(at: str, value: Any) -> list[dict[str, Any]]:
    """Return an array of objects; an absent one is empty."""
    if not isinstance(value, list | None):
        raise PublishedError(f"{at} must be an array")
    return [table(f"{at}[{number}]", one) for number, one in enumerate(value or ())]


def text(at: str, value: Any, *, default: str | None = None) -> str:
    """Return a string without control characters; without a default it must not be empty."""
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value and default is None):
        raise PublishedError(f"{at} must be a non-empty string")
    if not value.isprintable() and any(ord(c) < 32 for c in value):
        raise PublishedError(f"{at} contains control characters")
    return value


def default_of(at: str, value: Any) -> tuple[str, ...]:
    """Return the default of a setting as texts."""
    if isinstance(value, list):
        return tuple(one for entry in value for one in default_of(at, entry))
    if value is None or value == "":
        return ()
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, int | float):
        return (f"{value}",)
    return (text(at, value),)
