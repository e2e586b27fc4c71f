"""Credentials that change: ready now or waited for, refused and sent once more, never elsewhere."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from portico.core.model.errors import TargetError
from portico.edge.client.connect import connect
from portico.upstream.auth.flow import IssuerUnavailable, LoginError, LoginNeeded
from portico.upstream.wires.credentials import StaticToken
from portico.upstream.wires.streamable_http import Url
from tests.upstream.connections.fakes import result
from tests.upstream.connections.web_server import Asked, reply, web_server
from tests.upstream.connections.web_talks import FINE, Writer, legacy_server, modern_server


class Changing:
    """Credentials of which a test decides everything."""

    name = "x-api-key"

    def __init__(self, *values: str, fails: Exception | None = None) -> None:
        self._values = list(values)
        self._now: str | None = None
        self._fails = fails
        self.refusals: list[tuple[int, str]] = []
        self.obtained = 0

    def header(self) -> str | None:
        return self._now

    async def obtain(self) -> None:
        await asyncio.sleep(0)
        self.obtained += 1
        if self._fails is not None:
            raise self._fails
        self._now = self._values.pop(0)

    async def refused(self, status: int, challenge: str) -> bool:
        before = self._now
        await asyncio.sleep(0)
        self.refusals.append((status, challenge))
        if self._now != before:
            return True  # another request was faster
        if not self._values:
            raise LoginNeeded("refused the login", "portico servers login x", ("write",))
        self._now = self._values.pop(0)
        return True


def wants(*accepted: str, status: int = 401) -> Callable[..., Any]:
    """Guards a server: only these keys are let in."""

    def guard(talk: Any) -> Any:
        async def guarded(asked: Asked, writer: Writer) -> None:
            if asked.headers.get("x-api-key") in accepted:
                await talk(asked, writer)
            else:
                reply(writer, status, {"message": asked.headers}, www_authenticate="Bearer x=1")

        return guarded

    return guard


async def fine(asked: Asked, writer: Writer) -> None:
    reply(writer, 200, result(asked.message, FINE))


async def test_what_is_not_ready_is_waited_for_once() -> None:
    async with web_server(wants("one")(modern_server(fine))) as server:
        credentials = Changing("one")
        async with await connect(Url(server.url, credentials=credentials)) as client:
            assert await client.call_tool("t") == FINE
        assert (credentials.obtained, credentials.refusals) == (1, [])


@pytest.mark.parametrize("make", [modern_server, legacy_server])
async def test_a_refused_request_is_sent_once_more(make: Callable[..., Any]) -> None:
    accepted = ["one"]

    async def talk(asked: Asked, writer: Writer) -> None:
        await wants(*accepted)(make(fine))(asked, writer)

    async with web_server(talk) as server:
        credentials = Changing("one", "two", "three")
        async with await connect(Url(server.url, credentials=credentials)) as client:
            assert await client.call_tool("t") == FINE
            accepted[:] = ["two"]
            assert await client.call_tool("t") == FINE
            assert {status for status, _ in credentials.refusals} == {401}
            assert credentials.refusals[0][1] == "Bearer x=1"


async def test_a_second_refusal_is_a_failure_of_the_kind_login_with_the_command() -> None:
    async with web_server(wants("none")(modern_server(fine))) as server:
        credentials = Changing("one", "two")
        with pytest.raises(TargetError) as caught:
            await connect(Url(server.url, title="x", credentials=credentials))
        error = caught.value
        assert str(error) == "x refused the login; run `portico servers login x`"
        assert error.kind == "login"
        assert error.details == {"command": "portico servers login x", "scopes": ["write"]}
        assert [asked.headers["x-api-key"] for asked in server.asked] == ["one", "two"]


async def test_calls_that_are_refused_together_do_not_use_up_the_new_login() -> None:
    accepted, held = ["one"], asyncio.Event()

    async def call(asked: Asked, writer: Writer) -> None:
        reply(writer, 200, result(asked.message, FINE))

    async def talk(asked: Asked, writer: Writer) -> None:
        if asked.method == "tools/call" and asked.headers["x-api-key"] == "one":
            await held.wait()
        await wants(*accepted)(modern_server(call))(asked, writer)

    async with web_server(talk) as server:
        credentials = Changing("one", "two")
        async with await connect(Url(server.url, credentials=credentials)) as client:
            calls = [asyncio.create_task(client.call_tool("t")) for _ in range(5)]
            while server.methods().count("tools/call") < 5:  # noqa: ASYNC110
                await asyncio.sleep(0)
            accepted[:] = ["two"]
            held.set()
            assert await asyncio.gather(*calls) == [FINE] * 5


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (IssuerUnavailable("HTTP 503"), "network", "its login is not refreshed: HTTP 503"),
        (LoginError("has another login now"), "login", "x has another login now"),
    ],
)
async def test_a_login_that_cannot_be_used_fails_the_call_with_the_reason(
    error: Exception, kind: str, said: str
) -> None:
    async with web_server(modern_server(fine)) as server:
        with pytest.raises(TargetError, match=said) as caught:
            await connect(Url(server.url, title="x", credentials=Changing(fails=error)))
        assert caught.value.kind == kind
        assert server.asked == []


async def test_a_fixed_token_is_refused_as_before() -> None:
    async with web_server(wants("none")(modern_server(fine))) as server:
        with pytest.raises(TargetError, match="rejected the token") as caught:
            await connect(Url(server.url, credentials=StaticToken("fixed")))
        assert caught.value.kind == "http"
        assert len(server.asked) == 1


async def test_credentials_do_not_follow_a_redirect_to_another_origin() -> None:
    async with web_server(modern_server(fine)) as other:

        async def away(asked: Asked, writer: Writer) -> None:
            reply(writer, 307, location=other.url)

        async with web_server(away) as server:
            with pytest.raises(TargetError, match="redirects to"):
                await connect(Url(server.url, credentials=Changing("one")))
        assert other.asked == []
