"""Our client in the suite's scenarios of OAuth: it logs in whenever a call says so, at a page that
a browser of its own opens."""

import asyncio
import json
import os
import shlex
import sys
import tempfile
from itertools import pairwise
from typing import Any
from urllib.request import ProxyHandler, build_opener

from portico.core.config.auth_settings import AuthSettings
from portico.core.model.errors import TargetError
from portico.edge.client.connect import connect
from portico.upstream.auth.configured_login import login_credentials, login_store
from portico.upstream.auth.flow import Visit
from portico.upstream.auth.login import LoginPlace
from portico.upstream.auth.page_login import PageLogin
from portico.upstream.auth.redirect_listener import RedirectListener
from portico.upstream.wires.streamable_http import Url

MAX_LOGINS = 10
"""A client that never stops is the fault of the client, not of this driver."""
METADATA_URL = "https://conformance-test.local/client-metadata.json"
CALLS = 2
"""Some scenarios change the server after the first."""


def settings(context: dict[str, Any], folder: str) -> AuthSettings:
    """The `auth` table that a person would write for a scenario."""
    found: dict[str, Any] = {"client_metadata_url": METADATA_URL}
    for key in ("client_id", "client_secret"):
        if key in context:
            found[key] = context[key]
    if os.environ["MCP_CONFORMANCE_SCENARIO"].startswith("auth/client-credentials"):
        found["grant"] = "client_credentials"
    if "private_key_pem" in context:
        found["private_key"] = os.path.join(folder, "key.pem")
        with open(os.open(found["private_key"], os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(context["private_key_pem"])
    return AuthSettings(**found)


async def log_in(place: LoginPlace, auth: AuthSettings, error: TargetError) -> None:
    """Do what the command in an error does, with a browser that agrees to everything."""
    command = shlex.split(error.details["command"])
    assert command[:4] == ["portico", "servers", "login", place.shown], command
    scopes = tuple(word for before, word in pairwise(command) if before == "--scope")
    listener = RedirectListener(place.shown)
    browser = build_opener(ProxyHandler({}))

    async def visit(wanted: Visit) -> str:
        ended = asyncio.create_task(listener.wait(wanted.accepts))
        page = asyncio.create_task(asyncio.to_thread(browser.open, wanted.url, None, 30))
        pages.append(page)
        return await ended

    pages: list[asyncio.Task[Any]] = []
    page = PageLogin(place, auth, login_store())
    try:
        await page.obtain(scopes, 30, listener, visit, page.save)
    finally:
        await asyncio.gather(*pages, return_exceptions=True)


async def use(url: str, credentials: Any) -> None:
    async with await connect(Url(url, credentials=credentials)) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"], {})


async def main() -> None:
    url = sys.argv[-1]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PORTICO_HOME"] = folder
        auth = settings(context, folder)
        place = LoginPlace(url)
        logins = calls = 0
        while calls < CALLS:
            credentials = login_credentials(url, {}, settings=auth)
            try:
                await use(url, credentials)
                calls += 1
            except TargetError as error:
                if error.kind != "login" or "command" not in error.details:
                    raise
                logins += 1
                if logins > MAX_LOGINS:
                    raise
                await log_in(place, auth, error)


if __name__ == "__main__":
    asyncio.run(main())
