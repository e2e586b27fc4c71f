"""The seam to credentials: a header that is ready now, or one to wait for."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from portico.core.http1.headers import header_problem
from portico.core.model.context import Context
from portico.core.model.errors import TargetError
from portico.core.model.message import Request, Response

AUTHORIZATION = "authorization"


class Credentials(Protocol):
    """The credentials for one server; they are never sent to another origin."""

    name: str
    """The header that carries them, in lower case."""

    def header(self) -> str | None:
        """Return the value to send now: empty for none, None if `obtain` must be awaited first."""
        ...

    async def obtain(self) -> None:
        """Make the value ready; raises LoginError if only a person can."""
        ...

    async def refused(self, status: int, challenge: str) -> bool:
        """Return True if the request can be sent once more; raises LoginError if a person must act.
        `challenge` is the server's WWW-Authenticate."""
        ...


class CallLinks(Protocol):
    """Links to a login, in the answers to calls that need it."""

    async def offer(
        self, request: Request, context: Context, error: TargetError
    ) -> Response | None:
        """Return the answer with a link; None if this client cannot have one."""
        ...

    async def resume(self, request: Request, context: Context) -> Request | Response:
        """Wait for the login, and return the call as it was; or the link again. Raises McpError."""
        ...

    async def close(self) -> None:
        """End a login that still waits for its person."""
        ...


@runtime_checkable
class LoginAccount(Credentials, Protocol):
    """Credentials that a person obtains by logging in."""

    account: str
    """The id of the login in use; empty without one."""
    place_key: str
    """The key of the place that it is for."""
    on_changed: Callable[[], None] | None
    """Called if another account is logged in now."""

    def adopt(self) -> None:
        """Use the login that is stored now."""
        ...

    def accepted(self) -> None:
        """Record that the server returned its lists."""
        ...

    def status(self) -> dict[str, Any] | None:
        """Return the facts for people; None without a login."""
        ...

    def links(self) -> CallLinks | None:
        """Return the links to this login; None if calls get none."""
        ...

    def is_stale(self) -> bool:
        """True if another login is stored than the one in use."""
        ...

    async def close(self) -> None:
        """Let a refresh finish."""
        ...


def login_of(address: object) -> LoginAccount | None:
    """Return the login of an address; None if it has none."""
    found = getattr(address, "credentials", None)
    return found if isinstance(found, LoginAccount) else None


def account_of(address: object) -> str:
    """Return the id of the login that an address uses now; empty without one."""
    login = login_of(address)
    return "" if login is None else login.account


class StaticToken:
    """A token that the user gave, or none."""

    name = AUTHORIZATION

    def __init__(self, token: str = "") -> None:
        self._value = f"Bearer {token}" if token else ""

    @property
    def problem(self) -> str:
        """Why it cannot be sent; empty if it can."""
        return header_problem(self.name, self._value)

    def header(self) -> str:
        """Return it."""
        return self._value

    async def obtain(self) -> None:
        """Do nothing: it is always ready."""

    async def refused(self, status: int, challenge: str) -> bool:
        """Return False: there is no other one."""
        return False


NO_CREDENTIALS = StaticToken()
