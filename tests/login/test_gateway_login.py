"""Logins in use: through `serve` and `wrap`, over stdio and HTTP, while both keep running."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.login.people import Person
from tests.rigs.issuer import IssuerRig
from tests.serve.gateway import Gateway, Pipes, result_of, text_in
from tests.support.running import WAIT_S, Piped
from tests.wrap.faults import Wrap, until, wrap_command

pytestmark = pytest.mark.slow


@pytest.fixture
def rig() -> Iterator[IssuerRig]:
    with IssuerRig() as made:
        yield made


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def login_error(answer: dict[str, Any], target: str) -> dict[str, Any]:
    """The error of a call that needs a login; it names the command."""
    data: dict[str, Any] = answer["error"]["data"]
    assert data["kind"] == "login", answer
    assert data["command"].startswith(f"portico servers login {target}")
    assert data["command"] in answer["error"]["message"]
    return data


@pytest.mark.parametrize("path", ["mcp", "legacy", "sse"])
def test_one_login_serves_wrap_over_stdio_and_http(
    rig: IssuerRig, person: Person, path: str
) -> None:
    url = f"{rig.origin}/{path}"
    with Wrap(person.home, url) as wrap:
        with wrap.client() as stranger:
            login_error(stranger.hello, url)
        control = person.home / "state" / "control"
        assert until(lambda: any(control.glob("*.sock"))), "it can be told"
        assert person.log_in(url)["running"] == [url]
        client = wrap.client()
        names = [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
        assert names == ["whoami", "slow", "of_ann"]
        assert client.said("whoami") == "you are ann"
        rig.expire_all()
        assert client.said("whoami") == "you are ann", "refreshed on a refusal"
        client.__exit__()
    with Piped(wrap_command(person.home, url)) as wrapped:
        wrapped.initialize()
        answer = wrapped.ask("tools/call", {"name": "whoami", "arguments": {}})
        assert text_in(result_of(answer)) == "you are ann"


def test_a_login_while_the_gateway_runs_is_seen_by_all_windows(
    rig: IssuerRig, person: Person
) -> None:
    with IssuerRig() as other:
        config = person.config(f"mine {rig.url}", f"other {other.url}", gateway='expose = "all"')
        person.log_in("other")
        with Pipes(person.home, config) as first, Pipes(person.home, config) as second:
            for window in (first, second):
                window.initialize()
                assert until(lambda w=window: "other__of_ann" in w.tools()), "one hides no other"
                assert "mine__whoami" not in window.tools()
            status = first.status()
            assert status["mine"]["state"] == "login"
            assert "run `portico servers login mine`" in status["mine"]["error"]
            assert status["mine"]["retry_in_s"] is None, "no loop"
            asked = len(rig.requests)

            assert person.log_in("mine")["running"] == ["mine"]
            for window in (first, second):
                assert until(lambda w=window: "mine__of_ann" in w.tools())
                assert window.said("mine__whoami") == "you are ann"
            assert first.status()["mine"]["login"]["account"] == "ann@people.test"
            assert len(rig.requests) > asked

            rig.person = "bob"
            person.log_in("mine")
            assert until(lambda: "mine__of_bob" in first.tools())
            assert "mine__of_ann" not in first.tools(), "another account, another catalog"
            assert second.said("mine__whoami") == "you are bob"


def test_catalogs_are_kept_by_account_and_one_without_a_login_keeps_its_key(
    rig: IssuerRig, person: Person
) -> None:
    rig.lets_in = frozenset({"initialize", "notifications/initialized", "tools/list"})
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')

    def offered() -> list[str]:
        with Pipes(person.home, config) as window:
            window.initialize()
            assert until(lambda: any("of_" in name for name in window.tools()))
            return [name for name in window.tools() if "of_" in name]

    assert offered() == ["mine__of_nobody"]
    person.log_in("mine")
    assert offered() == ["mine__of_ann"]
    person.log_out("mine")
    stored = list((person.home / "cache" / "catalogs").iterdir())
    rig.lets_in = frozenset()
    assert offered() == ["mine__of_nobody"], "from disk, as before any login"
    assert len(stored) >= 2


def test_a_logout_while_calls_run_lets_them_finish(rig: IssuerRig, person: Person) -> None:
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    person.log_in("mine")
    with Gateway(person.home, config) as gateway, gateway.client() as client:
        answers: list[dict[str, Any]] = []
        with gateway.client() as slow:
            calling = threading.Thread(target=lambda: answers.append(slow.call("mine__slow")))
            calling.start()
            assert rig.slow_call.wait(WAIT_S)
            assert person.log_out("mine")["running"] == ["mine"]
            login_error(client.call("mine__whoami"), "mine")
            rig.release_calls.set()
            calling.join(WAIT_S)
        assert text_in(result_of(answers[0])) == "you are ann"
        assert gateway.status()["mine"]["state"] == "login"


@pytest.mark.parametrize("path", ["mcp", "legacy", "sse"])
def test_a_server_that_lets_the_handshake_in_and_refuses_its_lists(
    rig: IssuerRig, person: Person, path: str
) -> None:
    rig.lets_in = frozenset({"initialize", "notifications/initialized", "server/discover"})
    config = person.config(f"mine {rig.origin}/{path}", gateway='expose = "all"')
    with Gateway(person.home, config) as gateway, gateway.client() as client:
        assert until(lambda: gateway.status()["mine"]["state"] == "login")
        status = gateway.status()["mine"]
        assert status["breaker"] == "closed"
        assert "run `portico servers login mine`" in status["error"]
        person.log_in("mine")
        assert until(lambda: gateway.status()["mine"]["tools"] == 3)
        assert client.said("mine__whoami") == "you are ann"


def test_failed_logins_never_open_the_breaker_and_never_become_a_401(
    rig: IssuerRig, person: Person
) -> None:
    import http.client

    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    person.log_in("mine")
    with Gateway(person.home, config) as gateway, gateway.client() as client:
        assert client.said("mine__whoami") == "you are ann"
        rig.revoke_all()
        first = client.call("mine__whoami")
        login_error(first, "mine")
        refreshes = len(rig.refreshes)
        for _ in range(8):
            login_error(client.call("mine__whoami"), "mine")
        assert len(rig.refreshes) == refreshes == 1, "no loop"
        status = gateway.status()["mine"]
        assert (status["breaker"], status["state"], status["tools"]) == ("closed", "login", 3)
        page = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)
        page.request("GET", "/metrics")
        response = page.getresponse()
        text = response.read().decode()
        page.close()
        assert response.status == 200
        assert 'portico_upstream_state{server="mine",state="login"} 1.0' in text
        person.log_in("mine")
        assert client.said("mine__whoami") == "you are ann", "at once, without a pause"


def test_a_call_that_lacks_scopes_names_them(rig: IssuerRig, person: Person) -> None:
    rig.needs_write = True
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    person.log_in("mine")
    with Gateway(person.home, config) as gateway, gateway.client() as client:
        data = login_error(client.call("mine__whoami"), "mine")
        assert data["scopes"] == ["write"]
        assert data["command"] == "portico servers login mine --scope write"
        assert gateway.status()["mine"]["state"] == "login"
        person.log_in("mine", "--scope", "write")
        assert client.said("mine__whoami") == "you are ann"
        assert gateway.status()["mine"]["login"]["scopes"] == ["read", "write"]


def test_status_and_list_show_the_login_and_warn_before_its_end(
    rig: IssuerRig, person: Person
) -> None:
    rig.answer = {"refresh_token_expires_in": 2 * 86400}
    config = person.config(f"mine {rig.url}")
    person.log_in("mine")
    with Gateway(person.home, config):
        status = person.run("status").stdout
        assert "mine: logged in as ann@people.test (read), until a login is needed in 2 d" in status
        warned = "warning: the login at mine ends in 2 d; run `portico servers login mine`"
        assert warned in status
        assert f"portico: {warned}" in person.run("servers", "list").stderr
        told = json.loads(person.run("servers", "list", "--json").stdout)
        assert told[0]["login"]["account"] == "ann@people.test"
    listed = person.run("servers", "list").stdout
    assert "logged in as ann@people.test" in listed, "also while nothing runs"


def test_an_authorization_server_that_is_down_ends_no_login(rig: IssuerRig, person: Person) -> None:
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    person.log_in("mine")
    with Gateway(person.home, config) as gateway, gateway.client() as client:
        assert client.said("mine__whoami") == "you are ann"
        rig.is_down = True
        rig.expire_all()
        error = client.call("mine__whoami")["error"]
        assert error["data"]["kind"] == "network"
        assert "its login is not refreshed" in error["message"]
        rig.is_down = False
        assert client.said("mine__whoami") == "you are ann"
