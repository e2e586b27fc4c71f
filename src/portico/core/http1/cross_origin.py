"""Requests to any origin, with redirects from one to another that carry no credentials."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from portico.core.http1.dial import Permit
from portico.core.http1.errors import ConnectError, InvalidRequest
from portico.core.http1.pool import Body, Pool
from portico.core.http1.response import Http1Response
from portico.core.http1.url import Origin, join_url, parse_url

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_NOTHING: Mapping[str, str] = MappingProxyType({})


class OriginRule(Protocol):
    """Decides which origins may be contacted, and how."""

    def refusal(self, origin: Origin) -> str:
        """Return why an origin may not be contacted; empty if it may."""

    def is_direct(self, origin: Origin) -> bool:
        """True if no proxy is used."""

    def permit(self, origin: Origin) -> Permit:
        """Return what to ask for each of its addresses."""


class CrossOriginClient:
    """Sends requests to any origin, over one pool for each."""

    def __init__(self, rule: OriginRule, connect_s: float) -> None:
        self._rule = rule
        self._connect_s = connect_s
        self._pools: dict[Origin, Pool] = {}

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = _NOTHING,
        *,
        credentials: Mapping[str, str] = _NOTHING,
        content: Body | None = None,
    ) -> Http1Response:
        """Send a request and wait for the head of its response; raises Http1Error.

        Redirects are followed unless there is a body, which is sent once. No request after a
        redirect has the credentials, even at the same origin.
        """
        sent = {**headers, **credentials}
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._pool(url).send(method, url, sent, content)
            try:
                await response.head()
            except BaseException:
                response.close()
                raise
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location or content is not None:
                return response
            response.close()
            url, sent = join_url(url, location), dict(headers)
        raise ConnectError(f"redirected more than {MAX_REDIRECTS} times")

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.close()

    def _pool(self, url: str) -> Pool:
        """Return the pool of an origin; raises InvalidRequest if it may not be contacted."""
        origin = parse_url(url).origin
        if why := self._rule.refusal(origin):
            raise InvalidRequest(why)
        found = self._pools.get(origin)
        if found is None:
            found = self._pools[origin] = Pool(
                {},
                self._connect_s,
                is_direct=self._rule.is_direct(origin),
                permit=self._rule.permit(origin),
            )
        return found
