"""Links in calls, in one process: who gets one, for how long, and for whom its state is good."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from portico.core.config.auth_settings import AuthSettings
from portico.core.model.context import ANYONE, LOCAL, Context
from portico.core.model.errors import InvalidParams, McpError, TargetError
from portico.core.model.message import Meta, Request, Response
from portico.core.model.methods import TABLE
from portico.core.model.version import Version
from portico.upstream.auth.login import LoginPlace
from portico.upstream.auth.login_links import LoginLinks
from portico.upstream.auth.login_store import LoginStore
from tests.rigs.issuer import IssuerRig
from tests.support.browser import log_in
from tests.support.running import WAIT_S
from tests.wrap.faults import until

KEY = "portico_login"
NEEDED = TargetError(
    "mine requires a login", kind="login", command="portico servers login mine", scopes=["read"]
)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[IssuerRig]:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    with IssuerRig() as made:
        yield made


@asynccontextmanager
async def links(rig: IssuerRig, folder: Path, **how: Any) -> AsyncIterator[LoginLinks]:
    place, store = LoginPlace(rig.url, "mine"), LoginStore(str(folder))
    made = LoginLinks(place, AuthSettings(), store, **how)
    try:
        yield made
    finally:
        await made.close()


def call(tool: str = "whoami", method: str = "tools/call", **more: Any) -> Request:
    version = Version.V2026_07_28
    return Request(
        id=b"1",
        method=method,
        name=tool,
        version=version,
        params=msgspec.json.encode({"name": tool, **more}),
        meta=Meta(client_capabilities=b'{"elicitation":{"url":{}}}'),
        meaning=TABLE.get((method, version)),
    )


def of(answer: Response | Request | None) -> tuple[str, str]:
    """The link of an answer, and its state."""
    assert isinstance(answer, Response)
    result = msgspec.json.decode(answer.result)
    return result["inputRequests"][KEY]["params"]["url"], result["requestState"]


def retry(state: str, tool: str = "whoami", action: str = "accept") -> Request:
    return call(tool, requestState=state, inputResponses={KEY: {"action": action}})


def is_closed(url: str) -> bool:
    """True if nothing listens there any more; the link itself is not opened."""
    try:
        socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), WAIT_S).close()
    except OSError:
        return True
    return False


def is_refused(url: str) -> bool:
    try:
        log_in(url, "ann", True)
    except OSError:
        return True
    return False


async def test_calls_at_the_same_time_get_one_link_and_go_on_together(
    rig: IssuerRig, tmp_path: Path
) -> None:
    async with links(rig, tmp_path) as made:
        context = Context(principal=LOCAL)
        found = await asyncio.gather(*(made.offer(call(), context, NEEDED) for _ in range(5)))
        assert len({of(answer)[0] for answer in found}) == 1
        assert len(rig.registered) == 1
        url, state = of(found[0])
        waiting = asyncio.create_task(made.resume(retry(state), context))
        await asyncio.to_thread(log_in, url, "ann", True)
        resumed = await waiting
        assert isinstance(resumed, Request)
        assert msgspec.json.decode(resumed.params) == {"name": "whoami"}, "the call as it was"
        assert await asyncio.to_thread(is_refused, url), "good once"


async def test_the_state_and_the_answers_of_the_server_behind_come_back(
    rig: IssuerRig, tmp_path: Path
) -> None:
    async with links(rig, tmp_path) as made:
        context = Context(principal=LOCAL)
        inner: dict[str, Any] = {
            "requestState": "theirs",
            "inputResponses": {"a": {"action": "accept"}},
        }
        url, state = of(await made.offer(call(**inner), context, NEEDED))
        await asyncio.to_thread(log_in, url, "ann", True)
        resumed = await made.resume(retry(state), context)
        assert isinstance(resumed, Request)
        assert msgspec.json.decode(resumed.params) == {"name": "whoami", **inner}


async def test_a_state_is_good_for_one_principal_and_one_call(
    rig: IssuerRig, tmp_path: Path
) -> None:
    async with links(rig, tmp_path) as made:
        _, state = of(await made.offer(call(), Context(principal=LOCAL), NEEDED))
        for request, principal in [
            (retry(state), "task:1"),
            (retry(state), ANYONE),
            (retry(state, "other"), LOCAL),
            (retry(f"{state[:-3]}AAA"), LOCAL),
        ]:
            with pytest.raises(InvalidParams, match="requestState is not valid"):
                await made.resume(request, Context(principal=principal))
        theirs = retry("a state of the server")
        assert await made.resume(theirs, Context(principal=LOCAL)) is theirs
        words = call(arguments={"text": "portico-login-1."})
        assert await made.resume(words, Context(principal=LOCAL)) is words


async def test_too_late_the_link_and_the_state_are_good_no_more(
    rig: IssuerRig, tmp_path: Path
) -> None:
    now = [1000.0]
    async with links(rig, tmp_path, clock=lambda: now[0]) as made:
        context = Context(principal=LOCAL)
        _, state = of(await made.offer(call(), context, NEEDED))
        now[0] += 601
        with pytest.raises(InvalidParams, match="requestState is not valid"):
            await made.resume(retry(state), context)
    async with links(rig, tmp_path, life_s=3.0) as made:
        url, state = of(await made.offer(call(), context, NEEDED))
        assert await asyncio.to_thread(until, lambda: is_closed(url))
        assert await asyncio.to_thread(is_refused, url)
        assert rig.tokens_issued == 0
        other, _ = of(await made.offer(call(), context, NEEDED))
        assert other != url, "the next call gets another"


async def test_a_login_that_takes_too_long_ends_the_call_that_waits(
    rig: IssuerRig, tmp_path: Path
) -> None:
    async with links(rig, tmp_path, life_s=3.0) as made:
        context = Context(principal=LOCAL)
        _, state = of(await made.offer(call(), context, NEEDED))
        with pytest.raises(McpError, match="was not completed within 3 s; run `portico servers"):
            await made.resume(retry(state), context)


@pytest.mark.parametrize("principal", ["task:abc", ANYONE, ""])
async def test_an_agent_and_an_unknown_client_never_get_a_link(
    rig: IssuerRig, tmp_path: Path, principal: str
) -> None:
    async with links(rig, tmp_path) as made:
        assert await made.offer(call(), Context(principal=principal), NEEDED) is None
        assert rig.requests == [], "nor does a login begin"


async def test_no_link_for_lists_notifications_and_errors_that_name_no_login(
    rig: IssuerRig, tmp_path: Path
) -> None:
    context = Context(principal=LOCAL)
    other = TargetError("mine has another login now", kind="login")
    async with links(rig, tmp_path) as made:
        assert await made.offer(call(method="tools/list"), context, NEEDED) is None
        assert await made.offer(call(), context, other) is None
        assert rig.requests == []


async def test_an_authorization_server_that_is_down_leaves_the_command(
    rig: IssuerRig, tmp_path: Path
) -> None:
    rig.is_down = True
    async with links(rig, tmp_path) as made:
        assert await made.offer(call(), Context(principal=LOCAL), NEEDED) is None
        rig.is_down = False
        assert of(await made.offer(call(), Context(principal=LOCAL), NEEDED))


async def test_closing_ends_the_listener_and_the_calls_that_wait(
    rig: IssuerRig, tmp_path: Path
) -> None:
    async with links(rig, tmp_path) as made:
        context = Context(principal=LOCAL)
        url, state = of(await made.offer(call(), context, NEEDED))
        waiting = asyncio.create_task(made.resume(retry(state), context))
        await asyncio.sleep(0)
        await made.close()
        with pytest.raises(McpError, match="the login was interrupted"):
            await waiting
        assert await asyncio.to_thread(is_refused, url)
