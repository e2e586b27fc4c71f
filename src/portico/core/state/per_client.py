"""Data that is kept for each client of an endpoint."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from portico.core.model.context import Context
from portico.core.model.session import Session

T = TypeVar("T")
_MAX_PRINCIPALS = 100


class PerClient(Generic[T]):
    """Data by session, or by principal: modern clients over HTTP have no session."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._sessions: WeakKeyDictionary[Session, T] = WeakKeyDictionary()
        self._principals: OrderedDict[str, T] = OrderedDict()

    def of(self, context: Context) -> T:
        """Return the data of a request's client, made when it is first needed."""
        if context.session is not None:
            found = self._sessions.get(context.session)
            if found is None:
                found = self._sessions[context.session] = self._make()
            return found
        found = self._principals.get(context.principal)
        if found is None:
            found = self._principals[context.principal] = self._make()
            if len(self._principals) > _MAX_PRINCIPALS:
                self._principals.popitem(last=False)
        return found
