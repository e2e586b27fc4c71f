"""The seam of a login's flow: it yields requests and receives answers, and does no I/O itself.

LoginError
├── IssuerUnavailable   the authorization server cannot answer now: try again, keep the login
├── GrantRefused        the authorization server refused a grant; `code` is OAuth's
├── ScopesRefused       no further login can help: the server does not accept the scopes
└── LoginNeeded         a person must log in: names the command, and the scopes that are missing
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from portico.core.model.errors import PorticoError

MAX_SHOWN = 200
T = TypeVar("T")


class WebRequest(Struct, frozen=True):
    """A request of a flow, to be sent."""

    url: str
    form: Mapping[str, str] | None = None
    """Fields to post; None for a GET, unless there is `json`."""
    json: Any = None
    headers: Mapping[str, str] = {}
    about: str = ""
    """The noun for messages, such as `the metadata of ISSUER`."""

    def __repr__(self) -> str:
        return f"WebRequest({self.about!r})"

    @property
    def body(self) -> bytes | None:
        """The bytes to post; None for a GET."""
        if self.form is not None:
            return urlencode(self.form).encode()
        return None if self.json is None else msgspec.json.encode(self.json)


class WebAnswer(Struct, frozen=True):
    """The answer to it."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    """By name in lower case."""

    def __repr__(self) -> str:
        return f"WebAnswer({self.status})"

    def data(self) -> dict[str, Any] | None:
        """Return the JSON object in the body; None if there is none."""
        try:
            found = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


class Visit(Struct, frozen=True):
    """A page that the person must visit; the answer is the URL that the browser ends at."""

    url: str
    issuer: str
    accepts: Callable[[str], bool]
    """True for a URL that ends this visit, and no other."""

    def __repr__(self) -> str:
        return f"Visit({self.issuer!r})"


Flow = Generator[WebRequest, WebAnswer, T]
LoginFlow = Generator[WebRequest | Visit, Any, T]


class LoginError(PorticoError):
    """A login cannot be completed or used."""


class IssuerUnavailable(LoginError):
    """The authorization server cannot answer now."""


class GrantRefused(LoginError):
    """The authorization server refused a grant."""

    def __init__(self, message: str, code: str, date: str = "") -> None:
        """`date` is the time of the answer, as HTTP writes it."""
        super().__init__(message)
        self.code = code
        self.date = date


class ScopesRefused(LoginError):
    """The server refuses a call for its scopes, and another login would change nothing."""

    def __init__(self, message: str, scopes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.scopes = tuple(scopes)


class LoginNeeded(LoginError):
    """A person must log in, or log in again."""

    def __init__(self, why: str, command: str, scopes: Sequence[str] = ()) -> None:
        super().__init__(f"{why}; run `{command}`")
        self.why = why
        self.command = command
        self.scopes = tuple(scopes)


def checked_status(answer: WebAnswer, about: str) -> None:
    """Raise IssuerUnavailable for an answer that another try may change."""
    if answer.status >= 500 or answer.status in (408, 429):
        raise IssuerUnavailable(f"{about} returned HTTP {answer.status}; try again later")


def shown(text: object) -> str:
    """Return a text of a server on one line, without control characters, and shortened."""
    plain = "".join(char if char.isprintable() else " " for char in str(text))
    line = " ".join(plain.split())
    return line if len(line) <= MAX_SHOWN else f"{line[: MAX_SHOWN - 1]}…"
