"""A call that lacks scopes: a login that requests them helps, or ends after a few tries."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.login.people import Person
from tests.rigs.issuer import IssuerRig
from tests.serve.gateway import Gateway

pytestmark = pytest.mark.slow


@pytest.fixture
def rig() -> Iterator[IssuerRig]:
    with IssuerRig() as made:
        made.needs_write = True
        yield made


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def obey(person: Person, error: dict[str, Any]) -> None:
    """Run the command of an error, as a person would."""
    command = shlex.split(error["data"]["command"])
    assert command[:3] == ["portico", "servers", "login"]
    done = person.run(*command[1:])
    assert done.returncode == 0, done.stderr


def requested(rig: IssuerRig) -> list[list[str]]:
    """The scopes of each visit to the page."""
    pages = [urlsplit(path) for _, path, _, _ in rig.requests if path.startswith("/authorize?")]
    return [parse_qs(page.query).get("scope", [""])[0].split() for page in pages]


def test_a_missing_scope_is_granted_by_the_login_that_the_call_names(
    rig: IssuerRig, person: Person
) -> None:
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    person.log_in("mine", "--scope", "read")
    with Gateway(person.home, config) as gateway, gateway.client() as client:
        error = client.call("mine__whoami")["error"]
        assert error["data"]["scopes"] == ["write"]
        obey(person, error)
        assert client.said("mine__whoami") == "you are ann"
        assert requested(rig) == [["read"], ["read", "write"]], "the union"
        person.log_in("mine")
        assert requested(rig)[-1] == ["read", "write"], "a plain login loses none"


@pytest.mark.parametrize("grants", [{"read"}, {"read", "write"}], ids=["refused", "granted"])
def test_a_call_that_is_refused_again_and_again_ends_with_the_scopes_named(
    rig: IssuerRig, person: Person, grants: set[str]
) -> None:
    rig.grants, rig.is_never_content = frozenset(grants), True
    config = person.config(f"mine {rig.url}", gateway='expose = "all"')
    person.log_in("mine", "--scope", "read")
    with Gateway(person.home, config) as gateway, gateway.client() as client:
        logins = 0
        while "command" in (error := client.call("mine__whoami")["error"])["data"]:
            obey(person, error)
            logins += 1
            assert logins <= 3
        assert logins == 3
        assert "refuses the scopes" in error["message"]
        assert "though 3 logins requested them" in error["message"]
        assert "write" in error["data"]["scopes"]
        assert (error["data"]["kind"], error["data"]["status"]) == ("http", 403)
        status = gateway.status()["mine"]
        assert (status["state"] != "login", status["breaker"]) == (True, "closed")
        assert status["login"]["needed"] == ""
        person.log_out("mine")
        rig.is_never_content, rig.grants = False, frozenset({"read", "write"})
        person.log_in("mine", "--scope", "read write")
        assert client.said("mine__whoami") == "you are ann", "a logout begins anew"


def test_a_challenge_with_a_thousand_scopes_is_refused_in_one_line(
    rig: IssuerRig, person: Person
) -> None:
    rig.challenge = " ".join(f"scope{number}" for number in range(1000))
    person.log_in(rig.url)
    done = person.call(rig.url, "whoami")
    assert done.returncode == 1
    assert "requires 1000 scopes at once, more than 50" in done.stderr
    assert len(done.stderr) < 300
    assert "scope7" not in done.stderr


def test_scopes_that_the_issuer_does_not_know_end_the_login_with_its_reason(
    rig: IssuerRig, person: Person
) -> None:
    rig.response = {"code": None, "error": "invalid_scope", "error_description": "unknown: write"}
    done = person.run("servers", "login", rig.url, "--scope", "write")
    assert done.returncode == 1
    assert "refused the login: unknown: write" in done.stderr
