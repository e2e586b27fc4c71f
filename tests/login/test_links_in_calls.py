"""Links in calls: a client that can show a page gets the login in its call, in both eras."""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.login.people import Person
from tests.rigs.issuer import IssuerRig
from tests.serve.gateway import Gateway, Pipes, result_of, text_in
from tests.support.browser import log_in
from tests.support.messages import modern, modern_meta
from tests.support.running import WAIT_S, Piped
from tests.wrap.faults import until, wrap_command

pytestmark = pytest.mark.slow

URL: dict[str, Any] = {"elicitation": {"url": {}}}
FORM: dict[str, Any] = {"elicitation": {"form": {}}}
KEY = "portico_login"
OPEN = frozenset({"initialize", "notifications/initialized", "server/discover", "tools/list"})


@pytest.fixture
def rig() -> Iterator[IssuerRig]:
    with IssuerRig() as made:
        made.lets_in = OPEN
        yield made


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    return Person(tmp_path)


@pytest.fixture
def window(rig: IssuerRig, person: Person) -> Iterator[Pipes]:
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    with Pipes(person.home, config) as window:
        yield window


def hello(window: Piped, able: dict[str, Any], version: str = "2025-11-25") -> None:
    """Shake hands as a legacy client with these capabilities, and wait for the tools."""
    info = {"name": "tests", "version": "1"}
    params = {"protocolVersion": version, "capabilities": able, "clientInfo": info}
    assert "result" in window.ask("initialize", params)
    window.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert until(lambda: "whoami" in str(window.ask("tools/list")))


def call(
    window: Piped, able: dict[str, Any], tool: str = "mine__whoami", **more: Any
) -> dict[str, Any]:
    """The answer to the call of a modern client."""
    params = {"name": tool, "arguments": {}, "_meta": modern_meta(able), **more}
    return window.ask("tools/call", params)


def ready(window: Piped) -> None:
    """Wait for the tools, as a modern client."""
    listed = {"_meta": modern_meta(URL)}
    assert until(lambda: "whoami" in str(window.ask("tools/list", listed)))


def link_in(answer: dict[str, Any]) -> tuple[str, str]:
    """The link of a modern answer, and the state to send back."""
    result = result_of(answer)
    assert result["resultType"] == "input_required", answer
    params = result["inputRequests"][KEY]["params"]
    assert params["mode"] == "url"
    assert "mine" in params["message"]
    return params["url"], result["requestState"]


def answered(state: str, action: str = "accept") -> dict[str, Any]:
    return {"requestState": state, "inputResponses": {KEY: {"action": action}}}


def get(url: str, cookie: str = "") -> tuple[int, dict[str, str], str]:
    """One request of a browser, which follows nothing."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=WAIT_S)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    connection.request("GET", target, headers={"cookie": cookie} if cookie else {})
    response = connection.getresponse()
    found = {name.lower(): value for name, value in response.getheaders()}
    page = response.read().decode()
    connection.close()
    return response.status, found, page


def test_a_modern_client_gets_the_link_and_its_call_goes_on_after_the_login(
    rig: IssuerRig, window: Pipes, person: Person
) -> None:
    ready(window)
    url, state = link_in(call(window, URL))
    assert url.startswith("http://127.0.0.1:")
    pages: list[tuple[str, str]] = []
    browser = threading.Thread(target=lambda: pages.append(log_in(url, "ann", True)))
    browser.start()
    done = call(window, URL, **answered(state))
    assert text_in(result_of(done)) == "you are ann"
    browser.join(WAIT_S)
    assert "Logged in" in pages[0][1]
    assert person.run("servers", "list").stdout.count("logged in as ann@people.test") == 1
    assert text_in(result_of(call(window, URL))) == "you are ann", "and so do all later calls"
    secret = url.rpartition("/")[2]
    kept = [path for path in person.home.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if secret.encode() in path.read_bytes()], "in no file or log"


def test_a_legacy_client_gets_the_link_as_an_error_and_hears_of_the_end(
    rig: IssuerRig, window: Pipes
) -> None:
    hello(window, URL)
    error = window.call("mine__whoami")["error"]
    assert error["code"] == -32042
    (page,) = error["data"]["elicitations"]
    assert (page["mode"], page["message"].count("requires a login")) == ("url", 1)
    assert error["data"]["command"] == "portico servers login mine"
    again = window.call("mine__whoami")["error"]["data"]["elicitations"][0]
    assert again["url"] == page["url"], "one link for all calls"
    assert "Logged in" in log_in(page["url"], "ann", True)[1]

    def heard() -> bool:
        window.ask("ping")
        wanted = "notifications/elicitation/complete"
        told = [one for one in window.received_before() if one.get("method") == wanted]
        return any(one["params"]["elicitationId"] == page["elicitationId"] for one in told)

    assert until(heard)
    assert window.said("mine__whoami") == "you are ann"


def test_a_declined_link_names_the_command_and_is_good_no_more(
    rig: IssuerRig, window: Pipes
) -> None:
    ready(window)
    url, state = link_in(call(window, URL))
    for action in ("decline", "cancel"):
        error = call(window, URL, **answered(state, action))["error"]
        assert "the login was declined; run `portico servers login mine`" in error["message"]
        assert error["data"]["kind"] == "login"
    assert until(lambda: is_closed(url))
    other, _ = link_in(call(window, URL))
    assert other != url, "the next call gets another"
    wrong = call(window, URL, requestState=state, inputResponses={KEY: {"action": "jump"}})
    assert "must have an action" in wrong["error"]["message"]


def is_closed(url: str) -> bool:
    try:
        get(url)
    except OSError:
        return True
    return False


def test_a_link_works_in_one_browser_and_only_that_one_ends_the_login(
    rig: IssuerRig, window: Pipes
) -> None:
    ready(window)
    url, state = link_in(call(window, URL))
    status, headers, _ = get(url)
    assert status == 302
    cookie = headers["set-cookie"].partition(";")[0]
    assert "HttpOnly; SameSite=Lax" in headers["set-cookie"]

    status, _, page = get(url)
    assert (status, "was opened already" in page) == (410, True), "a second browser"
    status, _, _ = get(url, cookie)
    assert status == 302, "the first one may come again"
    status, _, page = get(f"{url[:-4]}0000")
    assert (status, "not valid" in page) == (404, True)

    # Somebody else who got the page of the authorization server logs in there.
    _, theirs, _ = get(headers["location"])
    status, _, page = get(theirs["location"])
    assert (status, "another browser" in page) == (400, True)
    status, _, page = get(theirs["location"], "portico_login=guessed")
    assert (status, "another browser" in page) == (400, True)
    assert rig.tokens_issued == 0, "their code is of no use"

    _, ours, _ = get(headers["location"])
    status, _, page = get(ours["location"], cookie)
    assert (status, "Logged in" in page) == (200, True)
    assert text_in(result_of(call(window, URL, **answered(state)))) == "you are ann"


def test_a_link_for_more_scopes_requests_them(rig: IssuerRig, person: Person) -> None:
    rig.needs_write = True
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    person.log_in("mine", "--scope", "read")
    with Pipes(person.home, config) as window:
        ready(window)
        answer = call(window, URL)
        assert "with the scopes write" in str(answer)
        url, state = link_in(answer)
        log_in(url, "ann", True)
        assert text_in(result_of(call(window, URL, **answered(state)))) == "you are ann"
        assert "logged in as ann@people.test (read write)" in person.run("servers", "list").stdout


def test_execute_tool_passes_the_link_on(rig: IssuerRig, person: Person) -> None:
    config = person.config(f"mine {rig.url}", gateway='expose = "search"')
    with Pipes(person.home, config) as window:
        inner = {"name": "mine__whoami", "arguments": {}}

        def execute(**more: Any) -> dict[str, Any]:
            params = {"name": "execute_tool", "arguments": inner, "_meta": modern_meta(URL)}
            return window.ask("tools/call", {**params, **more})

        url, state = link_in(execute())
        log_in(url, "ann", True)
        assert text_in(result_of(execute(**answered(state)))) == "you are ann"


@pytest.mark.parametrize("path", ["mcp", "legacy"])
def test_wrap_passes_the_link_on_from_servers_of_both_eras(
    rig: IssuerRig, person: Person, path: str
) -> None:
    server = f"{rig.origin}/{path}"
    with Piped(wrap_command(person.home, server)) as wrapped:
        hello(wrapped, URL)
        params = {"name": "whoami", "arguments": {}}
        error = wrapped.ask("tools/call", params)["error"]
        assert error["code"] == -32042
        log_in(error["data"]["elicitations"][0]["url"], "ann", True)
        assert until(lambda: "you are ann" in str(wrapped.ask("tools/call", params)))


@pytest.mark.parametrize("able", [{}, FORM])
def test_a_client_that_cannot_show_a_link_gets_the_command(
    rig: IssuerRig, window: Pipes, able: dict[str, Any]
) -> None:
    ready(window)
    error = call(window, able)["error"]
    assert error["data"]["kind"] == "login"
    assert "run `portico servers login mine`" in error["message"]
    assert "127.0.0.1" not in str(error)


@pytest.mark.parametrize(
    ("able", "version"), [({}, "2025-11-25"), (FORM, "2025-11-25"), (URL, "2025-06-18")]
)
def test_a_legacy_client_that_cannot_show_a_link_gets_the_command(
    rig: IssuerRig, window: Pipes, able: dict[str, Any], version: str
) -> None:
    hello(window, able, version)
    error = window.call("mine__whoami")["error"]
    assert (error["data"]["kind"], error["code"] == -32042) == ("login", False)
    assert "run `portico servers login mine`" in error["message"]


@pytest.mark.parametrize("options", [(), ("--allow-host", "gate.test")], ids=["here", "remote"])
def test_over_http_a_client_with_the_token_gets_a_link_unless_it_may_be_remote(
    rig: IssuerRig, person: Person, options: tuple[str, ...]
) -> None:
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    with Gateway(person.home, config, "--auth", "token", *options) as gateway:
        token = (person.home / "state" / "token").read_text().strip()
        headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "mine__whoami",
        }
        params = {"name": "mine__whoami", "arguments": {}}
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=2 * WAIT_S)
        body = json.dumps(modern("tools/call", params, URL)).encode()
        connection.request("POST", "/mcp", body, headers)
        answer = json.loads(connection.getresponse().read())
        connection.close()
    if options:
        assert answer["error"]["data"]["kind"] == "login", answer
    else:
        assert link_in(answer)[0].startswith("http://127.0.0.1:")


@pytest.mark.parametrize("why", ["no token", "ssh", "switched off"])
def test_no_link_where_the_page_could_not_come_back_or_anybody_could_ask(
    rig: IssuerRig, person: Person, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = "auth = { links = false }" if why == "switched off" else ""
    config = person.config(f"mine {rig.url} {auth}".rstrip(), gateway='expose = "all"')
    if why == "no token":
        with Gateway(person.home, config) as gateway, gateway.client(URL) as client:
            assert until(lambda: "whoami" in str(client.ask("tools/list")))
            assert client.call("mine__whoami")["error"]["data"]["kind"] == "login"
        return
    if why == "ssh":
        monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    with Pipes(person.home, config) as window:
        ready(window)
        assert call(window, URL)["error"]["data"]["kind"] == "login"
