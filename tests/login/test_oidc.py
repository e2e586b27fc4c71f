"""Logins end to end at an authorization server by others, oidc-provider."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.login.people import Person
from tests.serve.gateway import Gateway
from tests.support.node import environment, node, ts
from tests.support.running import WAIT_S
from tests.wrap.faults import until

pytestmark = pytest.mark.slow


class Provider:
    """A running oidc-provider with an MCP server behind it."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.url = f"{origin}/mcp"

    def get(self, path: str) -> dict[str, Any]:
        with build_opener(ProxyHandler({})).open(self.origin + path, timeout=WAIT_S) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def seen(self) -> dict[str, Any]:
        """What it has seen so far."""
        return self.get("/test/seen")


@contextmanager
def provider(**options: Any) -> Iterator[Provider]:
    process = subprocess.Popen(
        [node(), ts("oidc.mjs"), json.dumps(options)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield Provider(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait(WAIT_S)
        process.stdout.close()


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path, "ann")


def test_login_refresh_another_account_revocation_and_logout(person: Person) -> None:
    with provider() as issuer:
        config = person.config(f"mine {issuer.url}", gateway='expose = "all"')
        told = person.log_in("mine")
        assert (told["account"], told["scopes"]) == ("ann@people.test", ["mcp:read"])
        assert "ann@people.test" in person.page()
        assert issuer.seen() | {"calls": []} == {
            "token": ["authorization_code"],
            "register": 1,
            "revoked": 0,
            "calls": [],
        }
        with Gateway(person.home, config) as gateway, gateway.client() as client:
            assert until(lambda: "mine__whoami_ann" in names(client))
            assert client.said("mine__whoami_ann") == "whoami_ann is ann with mcp:read"

            other = Person(person.home.parent, "bob")
            assert other.log_in("mine")["account"] == "bob@people.test"
            assert until(lambda: names(client) == ["mine__whoami_bob"])
            assert client.said("mine__whoami_bob") == "whoami_bob is bob with mcp:read"
            assert issuer.seen()["register"] == 1, "the client is kept"

            issuer.get("/test/revoke")
            answer = client.call("mine__whoami_bob")
            assert answer["error"]["data"]["command"] == "portico servers login mine"
            assert other.log_in("mine")["account"] == "bob@people.test"
            assert client.said("mine__whoami_bob") == "whoami_bob is bob with mcp:read"

            before = issuer.seen()["revoked"]
            assert other.log_out("mine")["problem"] == ""
            assert issuer.seen()["revoked"] > before
            assert client.call("mine__whoami_bob")["error"]["data"]["kind"] == "login"


def test_a_token_that_expires_is_refreshed_and_nobody_notices(person: Person) -> None:
    with provider(life_s=1) as issuer:
        person.log_in(issuer.url)
        assert until(
            lambda: issuer.seen()["token"].count("refresh_token") >= 2 or ok(person, issuer)
        )
        assert issuer.seen()["token"].count("refresh_token") >= 2


def ok(person: Person, issuer: Provider) -> bool:
    done = person.call(issuer.url, "whoami_ann")
    assert done.stdout == "whoami_ann is ann with mcp:read\n", done.stderr
    return False


def test_a_login_that_is_denied_stores_nothing(person: Person) -> None:
    with provider() as issuer:
        done = person.run("servers", "login", issuer.url, how="deny")
        assert done.returncode == 1
        assert "was denied: End-User aborted interaction" in done.stderr
        assert "Not logged in" in person.page()
        assert "requires a login" in person.call(issuer.url, "whoami_ann").stderr


def test_a_client_by_hand_and_one_that_is_described_need_no_registration(person: Person) -> None:
    with provider(described=True) as issuer:
        described = 'auth = { client_metadata_url = "https://portico.test/client.json" }'
        person.config(
            f"described {issuer.url} {described}",
            f'byhand {issuer.url} auth = {{ client_id = "by-hand" }}',
            f"neither {issuer.url}",
        )
        for name in ("described", "byhand"):
            assert person.log_in(name)["account"] == "ann@people.test"
            assert person.call(name, "whoami_ann").returncode == 0
        assert issuer.seen()["register"] == 0
        done = person.run("servers", "login", "neither")
        assert "does not register clients" in done.stderr
        assert "set client_id" in done.stderr


def names(client: Any) -> list[str]:
    return [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
