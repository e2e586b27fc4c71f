"""Which session a request belongs to, and the values that a component keeps in it.

The id of a session is a keyed digest of the client's session, its principal and the component, so
that no component can name the session of another client, nor what another component keeps.
"""

import os
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from portico.core.model.context import ANYONE, Context
from portico.core.model.errors import SessionError
from portico.core.model.message import Request
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members

if TYPE_CHECKING:
    from portico.core.state.session_store import SessionStore

T = TypeVar("T")
SESSION_KEY = "portico/session"
"""In the `_meta` of a request to a component's process: the id of the session."""
FOLDER_VARIABLE = "PORTICO_SESSIONS"
"""Set for a component's process: the folder of the store, whose ids it gets in requests."""
PRINCIPAL = "principal"
"""The key of a session that is all that a principal has."""
_NO_SESSION = (
    "this request has no session that values can be kept for: over HTTP, a modern client has one "
    "only with a token; serve with a token, or connect over stdio"
)


class SessionValues:
    """The values of one component in one session of a client."""

    __slots__ = ("_session", "_store")

    def __init__(self, store: "SessionStore", session: str) -> None:
        self._store = store
        self._session = session

    @property
    def session(self) -> str:
        """The id of the session, which is different for each component."""
        return self._session

    async def get(self, key: str, default: Any = None, *, type: type[T] | None = None) -> Any:
        """Return a value, or the default if there is none; with a type, as an instance of it."""
        try:
            value = await self._store.get(self._session, key)
        except KeyError:
            return default
        if type is None:
            return value
        try:
            return msgspec.convert(value, type, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            raise SessionError(f"the value of {key[:40]!r} has another type: {error}") from None

    async def set(self, key: str, value: Any, *, expires_in: float | None = None) -> None:
        """Keep bytes, or a value with a JSON form; for this many seconds, if given."""
        await self._store.set(self._session, key, value, expires_in=expires_in)

    async def increment(self, key: str, by: int = 1) -> int:
        """Add to an integer, which is 0 at first, and return it."""
        return await self._store.increment(self._session, key, by)

    async def delete(self, key: str) -> bool:
        """Remove a value; False if there was none."""
        return await self._store.delete(self._session, key)

    async def keys(self) -> list[str]:
        """Return all keys, sorted."""
        return await self._store.keys(self._session)

    async def clear(self) -> None:
        """Remove all values."""
        await self._store.clear(self._session)


class ClientSessions:
    """The sessions of all clients of one process, or of one server."""

    def __init__(self, folder: Callable[[], str] | None = None) -> None:
        """`folder` returns the folder of the store; without one, values are kept in memory."""
        self._folder = folder
        self._opened: SessionStore | None = None
        self._secret = b""
        self._is_component = False

    def keep_in(self, folder: Callable[[], str]) -> None:
        """Keep values in the folder that this returns, unless some are kept already. In the process
        of a component, it is the folder of its gateway, which names the sessions."""
        given = os.environ.pop(FOLDER_VARIABLE, "")
        if self._opened is None:
            self._is_component = bool(given)
            self._folder = (lambda: given) if given else folder

    @property
    def store(self) -> "SessionStore":
        """The store of the values."""
        if self._opened is None:
            # SQLite is slow to load, and few components keep anything.
            from portico.core.state.session_store import sessions_in_folder, sessions_in_memory

            folder = None if self._folder is None else self._folder()
            self._opened = sessions_in_memory() if folder is None else sessions_in_folder(folder)
        return self._opened

    def of(self, request: Request | None, context: Context, component: str) -> SessionValues:
        """Return the values of a component in the session of a request; raises SessionError."""
        if self._is_component:
            id = "" if request is None else session_id_in(request)
        else:
            id = self.id_of(context, component)
        if not id:
            raise SessionError(_NO_SESSION)
        return SessionValues(self.store, id)

    def id_of(self, context: Context, component: str) -> str:
        """Return the id of a request's session for a component; empty if it has none."""
        key = self.key_of(context)
        return self._digest(key, context.principal, component) if key else ""

    def key_of(self, context: Context) -> str:
        """Return the key of a request's session; empty if it has none. It reveals no id that a
        client uses."""
        session = context.session
        if session is None:
            return "" if context.principal == ANYONE else PRINCIPAL
        session = session.parent or session
        if session.key is None:
            session.key = self._digest("session", session.id or os.urandom(16).hex())
        return session.key

    def stamped(self, request: Request, context: Context, component: str) -> Request:
        """Return a request with the id of its session for the process of a component; whatever its
        client sent under that name is removed."""
        id = self.id_of(context, component)
        if not id and request.params.find(b"_meta") < 0 and request.params.find(b"\\u") < 0:
            return request
        fields = members(request.params)
        meta = members(fields.get("_meta", b""))
        meta.pop(SESSION_KEY, None)
        if id:
            meta[SESSION_KEY] = Raw(encode(id))
        fields["_meta"] = Raw(encode(meta))
        return msgspec.structs.replace(request, params=encode(fields))

    def _digest(self, *parts: str) -> str:
        if not self._secret:
            from portico.core.state.user_secret import user_secret

            folder = None if self._folder is None else self._folder()
            self._secret = os.urandom(32) if folder is None else user_secret(folder)
        text = b"".join(b"%d:%b" % (len(raw), raw) for raw in (part.encode() for part in parts))
        return blake2b(
            text, key=self._secret, digest_size=20, person=b"portico session"
        ).hexdigest()


def session_id_in(request: Request) -> str:
    """Return the id that a gateway put into a request; empty if there is none."""
    meta = members(members(request.params).get("_meta", b""))
    try:
        return msgspec.json.decode(meta.get(SESSION_KEY, b'""'), type=str)
    except msgspec.DecodeError:
        return ""


SESSIONS = ClientSessions()
"""The sessions of this process."""
