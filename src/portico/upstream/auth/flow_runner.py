"""Runs the flow of a login over HTTP: bounded answers, few redirects, permitted addresses only."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

import msgspec

from portico.core.http1.errors import ForbiddenAddress, Http1Error, InvalidRequest
from portico.core.http1.pool import Pool
from portico.core.http1.url import join_url, parse_url
from portico.core.model.version import LATEST_LEGACY
from portico.upstream.auth.address_rule import AddressRule, is_global
from portico.upstream.auth.challenge import Challenge, parse_challenge
from portico.upstream.auth.flow import IssuerUnavailable, LoginError, Visit, WebAnswer, WebRequest
from portico.upstream.auth.web_url import checked_url, is_this_machine

CONNECT_S = 10.0
ANSWER_S = 20.0
MAX_ANSWER = 256 * 1024
MAX_REDIRECTS = 5
T = TypeVar("T")


class FlowRunner:
    """Sends the requests of flows on behalf of one server's login."""

    def __init__(
        self, rule: AddressRule, visit: Callable[[Visit], Awaitable[str]] | None = None
    ) -> None:
        """`visit` sends a person to a page and returns the URL that the browser ends at."""
        self._rule = rule
        self._visit = visit

    async def run(self, flow: Generator[Any, Any, T]) -> T:
        """Run a flow to its end; raises LoginError."""
        step: Callable[[Any], Any] = flow.send
        answer: Any = None
        while True:
            try:
                wanted = step(answer)
            except StopIteration as ended:
                outcome: T = ended.value
                return outcome
            step = flow.send
            try:
                answer = await self._answer(wanted)
            except LoginError as error:
                step, answer = flow.throw, error

    async def _answer(self, wanted: WebRequest | Visit) -> Any:
        if isinstance(wanted, WebRequest):
            return await self.fetch(wanted)
        assert self._visit is not None
        return await self._visit(wanted)

    async def fetch(self, request: WebRequest) -> WebAnswer:
        """Return the answer to a request; a GET follows redirects, each checked like the first."""
        url = request.url
        try:
            async with asyncio.timeout(ANSWER_S):
                for _ in range(MAX_REDIRECTS + 1):
                    answer = await self._exchange(url, request)
                    following = answer.headers.get("location", "")
                    if request.body is not None or not 300 <= answer.status < 400 or not following:
                        return answer
                    url = checked_url(join_url(url, following), f"the redirect of {request.about}")
        except TimeoutError:
            raise IssuerUnavailable(
                f"{request.about} did not arrive within {ANSWER_S:g} s; try again"
            ) from None
        except (ForbiddenAddress, InvalidRequest) as error:
            raise LoginError(f"{request.about} {error}; if it is right, set auth.issuer") from None
        except Http1Error as error:
            raise IssuerUnavailable(f"{request.about} {error}") from None
        raise LoginError(f"{request.about} redirects more than {MAX_REDIRECTS} times")

    async def _exchange(self, url: str, request: WebRequest) -> WebAnswer:
        origin = parse_url(url).origin
        pool = Pool(
            {},
            CONNECT_S,
            is_direct=is_this_machine(origin.host),
            permit=self._rule.permit(origin),
        )
        try:
            method = "GET" if request.body is None else "POST"
            response = await pool.send(method, url, request.headers, request.body)
            await response.head()
            body = bytearray()
            async for chunk in response:
                body += chunk
                if len(body) > MAX_ANSWER:
                    raise LoginError(f"{request.about} is longer than {MAX_ANSWER} bytes")
            return WebAnswer(response.status, bytes(body), response.headers)
        finally:
            await pool.close()


async def probe(server: str, rule: AddressRule) -> Challenge | None:
    """Return the challenge of a server; None if it lets the handshake in."""
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": LATEST_LEGACY.text,
            "capabilities": {},
            "clientInfo": {"name": "portico", "version": "0"},
        },
    }
    accept = {"accept": "application/json, text/event-stream"}
    posted = {**accept, "content-type": "application/json"}
    origin = parse_url(server).origin
    pool = Pool({}, CONNECT_S, is_direct=is_this_machine(origin.host), permit=rule.permit(origin))
    try:
        async with asyncio.timeout(ANSWER_S):
            response = await pool.send("POST", server, posted, msgspec.json.encode(opening))
            await response.head()
            if response.status in (400, 404, 405):  # a server of the old transport takes a GET
                response.close()
                response = await pool.send("GET", server, accept)
                await response.head()
    except TimeoutError:
        raise IssuerUnavailable(f"did not answer within {ANSWER_S:g} s; try again") from None
    except Http1Error as error:
        raise LoginError(str(error)) from None
    finally:
        await pool.close()
    if response.status not in (401, 403):
        return None
    return parse_challenge(response.headers.get("www-authenticate", ""))


async def address_rule(server: str, issuer: str = "") -> AddressRule:
    """Return the rule for the login of a server; `issuer` is the one in the config."""
    trusted = frozenset({parse_url(issuer).origin.host} if issuer else ())
    addresses = await _addresses(parse_url(server).origin.host)
    return AddressRule(any(not is_global(address) for address in addresses), trusted)


async def _addresses(host: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host.partition("%")[0]))]
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return []  # behind a proxy, or the first request reports it
    return [str(address[0]) for *_, address in found]
