"""Where a server's authorization server is: every place in order, and nothing of anyone else's."""

from typing import Any

import pytest

from portico.upstream.auth.challenge import Challenge
from portico.upstream.auth.discovery import discover
from portico.upstream.auth.flow import IssuerUnavailable, LoginError
from tests.upstream.auth.flows import ISSUER, SERVER, WELL_KNOWN, Played, issuer

RESOURCE = "https://api.test/.well-known/oauth-protected-resource"
METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"


def test_the_challenge_says_where_the_metadata_is_and_its_scopes_win() -> None:
    about = {"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["all"]}
    played = Played({**WELL_KNOWN, "https://api.test/about": about})
    found = played.run(discover(SERVER, Challenge("https://api.test/about", ("read",))))
    assert played.urls == ["https://api.test/about", METADATA]
    assert (found.scopes, found.issuer.name, found.resource) == (("read",), ISSUER, SERVER)


def test_the_path_comes_first_then_the_root() -> None:
    about = {"resource": "https://api.test", "authorization_servers": [ISSUER]}
    played = Played({RESOURCE: about, METADATA: issuer()})
    found = played.run(discover(SERVER, Challenge()))
    assert played.urls[:2] == [f"{RESOURCE}/mcp", RESOURCE]
    assert (found.resource, found.scopes) == ("https://api.test", ())


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("https://id.test/t1", "https://id.test/.well-known/oauth-authorization-server/t1"),
        ("https://id.test/t1", "https://id.test/.well-known/openid-configuration/t1"),
        ("https://id.test/t1", "https://id.test/t1/.well-known/openid-configuration"),
        ("https://id.test", "https://id.test/.well-known/openid-configuration"),
    ],
)
def test_the_metadata_of_an_issuer_is_found_in_every_place(name: str, place: str) -> None:
    about = {"resource": SERVER, "authorization_servers": [name]}
    played = Played({f"{RESOURCE}/mcp": about, place: issuer(name)})
    assert played.run(discover(SERVER, Challenge())).issuer.token_endpoint == f"{name}/token"


def test_a_server_of_2025_03_26_is_its_own_issuer_and_may_have_no_metadata() -> None:
    origin = "https://api.test"
    found = Played({}).run(discover(SERVER, Challenge()))
    assert found.issuer.authorization_endpoint == f"{origin}/authorize"
    assert found.issuer.registration_endpoint == f"{origin}/register"
    assert (found.resource, found.issuer.name) == (SERVER, origin)
    place = f"{origin}/.well-known/oauth-authorization-server"
    found = Played({place: issuer(f"{origin}/")}).run(discover(SERVER, Challenge()))
    assert found.issuer.token_endpoint == f"{origin}//token"


def test_a_page_for_everything_is_no_metadata() -> None:
    page = b"<html>not here</html>"
    places = {f"{RESOURCE}/mcp": page, RESOURCE: page}
    found = Played(places).run(discover(SERVER, Challenge()))
    assert found.issuer.name == "https://api.test"


def test_an_issuer_of_machines_needs_no_page_and_no_pkce() -> None:
    offers = {**issuer(), "code_challenge_methods_supported": None, "authorization_endpoint": None}
    found = Played({**WELL_KNOWN, METADATA: offers}).run(discover(SERVER, Challenge()))
    assert (found.issuer.authorization_endpoint, found.issuer.has_pkce) == ("", False)


def test_the_issuer_of_the_config_must_be_one_that_the_server_names() -> None:
    with pytest.raises(LoginError, match=r"does not name https://other\.test"):
        Played(WELL_KNOWN).run(discover(SERVER, Challenge(), "https://other.test"))
    assert Played(WELL_KNOWN).run(discover(SERVER, Challenge(), ISSUER)).issuer.name == ISSUER


WRONG: list[tuple[dict[str, Any], str]] = [
    ({f"{RESOURCE}/mcp": {"resource": "https://evil.test/mcp"}}, "about another server: https://e"),
    ({f"{RESOURCE}/mcp": {"resource": "https://api.test/mcpx"}}, "about another server"),
    ({f"{RESOURCE}/mcp": {"resource": 5}}, "about another server: 5"),
    ({f"{RESOURCE}/mcp": []}, "is not a JSON object"),
    ({f"{RESOURCE}/mcp": {"resource": SERVER}}, "names no authorization server; set auth.issuer"),
    ({METADATA: (404, {})}, "has no metadata"),
    ({METADATA: issuer("https://evil.test")}, "that of another issuer"),
    ({METADATA: issuer(f"{ISSUER}/")}, "that of another issuer"),
    ({METADATA: issuer(token_endpoint="http://id.test/t")}, "token_endpoint of .* must use https"),
    ({METADATA: issuer(authorization_endpoint="javascript:alert(1)")}, "is not a valid URL"),
    ({METADATA: issuer(authorization_endpoint="-x https://a")}, "is not a valid URL"),
    ({METADATA: issuer(token_endpoint=None)}, "token_endpoint of https://id.test is missing"),
    ({METADATA: issuer(registration_endpoint="file:///x")}, "registration_endpoint of .* not a va"),
]


@pytest.mark.parametrize(("answers", "said"), WRONG)
def test_metadata_that_cannot_be_trusted_ends_the_login(answers: dict[str, Any], said: str) -> None:
    with pytest.raises(LoginError, match=said) as caught:
        Played({**WELL_KNOWN, **answers}).run(discover(SERVER, Challenge()))
    assert "evil" not in str(caught.value) or "resource" in str(caught.value)


def test_a_server_that_cannot_answer_now_is_not_taken_for_one_without_metadata() -> None:
    with pytest.raises(IssuerUnavailable, match="HTTP 503"):
        Played({f"{RESOURCE}/mcp": (503, {})}).run(discover(SERVER, Challenge()))


@pytest.mark.parametrize("url", ["http://api.test/x", "https://u:p@api.test/x", "data:,x", "//x"])
def test_the_place_in_a_challenge_must_be_a_safe_url(url: str) -> None:
    with pytest.raises(LoginError, match="resource_metadata of the challenge"):
        Played({}).run(discover(SERVER, Challenge(url)))
