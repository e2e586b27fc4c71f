"""The login of a person, step by step, without a socket."""

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.challenge import Challenge
from portico.upstream.auth.client_identity import OwnClient
from portico.upstream.auth.flow import GrantRefused, IssuerUnavailable, LoginError, Visit
from portico.upstream.auth.login import Login, LoginPlace
from portico.upstream.auth.login_flow import LoginSettings, log_in, revoke
from portico.upstream.auth.token_request import refresh_grant, seconds
from tests.upstream.auth.flows import ISSUER, SERVER, WELL_KNOWN, KnownClients, Played, issuer

METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"
TOKEN = f"{ISSUER}/token"
NOW = 1000.0


def allow(**more: str | None) -> Callable[[Visit], str]:
    """A person who allows the login; `more` changes the response."""

    def visit(wanted: Visit) -> str:
        query = dict(parse_qsl(urlsplit(wanted.url).query))
        response = {"code": "c0de", "state": query["state"], **more}
        pairs = {name: value for name, value in response.items() if value is not None}
        return f"{query['redirect_uri']}?{urlencode(pairs)}"

    return visit


def login(
    answers: dict[str, Any] | None = None,
    visit: Callable[[Visit], str] | None = None,
    clients: KnownClients | None = None,
    bind: Callable[[int], int] = lambda port: port or 5000,
    before: Login | None = None,
    scopes: tuple[str, ...] = (),
    challenge: Challenge = Challenge(),  # noqa: B008  (frozen)
    **auth: Any,
) -> tuple[Login, Played]:
    """Log in at the server, whose answers may differ."""
    played = Played({**WELL_KNOWN, **(answers or {})}, visit or allow())
    settings = LoginSettings(
        place=LoginPlace(SERVER, "api"),
        auth=AuthSettings(**auth),
        before=before,
        scopes=scopes,
        challenge=challenge,
    )
    flow = log_in(settings, clients or KnownClients(), bind, os.urandom, lambda: NOW)
    return played.run(flow), played


def test_a_client_is_registered_the_code_exchanged_and_pkce_proves_who_asked() -> None:
    visited: list[dict[str, list[str]]] = []

    def visit(wanted: Visit) -> str:
        visited.append(parse_qs(urlsplit(wanted.url).query))
        return allow()(wanted)

    made, played = login(visit=visit)
    asked, form = visited[0], played.requests[-1].form
    assert form is not None
    assert played.requests[-2].json["application_type"] == "native"
    assert played.requests[-2].json["redirect_uris"] == ["http://127.0.0.1:5000/callback"]
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["resource"] == [form["resource"]] == [SERVER]
    assert (asked["scope"], asked["client_id"]) == (["read"], ["made"])
    assert form["code_verifier"] not in asked["code_challenge"][0]
    assert (made.value, made.facts.expires, made.facts.scopes) == ("Bearer at", 1060.0, ("read",))
    assert made.fresh_until == 1054.0, "a tenth of its life before its end"


def test_a_login_requests_the_union_of_earlier_and_missing_scopes() -> None:
    offers = {METADATA: issuer(scopes_supported=["read", "write", "offline_access"])}
    first, _ = login(offers)
    assert first.facts.scopes == ("read", "offline_access"), "where it is offered"
    assert login()[0].facts.scopes == ("read",)
    more, _ = login(offers, before=first, scopes=("write",))
    assert more.facts.scopes == ("read", "offline_access", "write")
    again, _ = login(offers, before=more)
    assert again.facts.scopes == more.facts.scopes, "a plain login loses none"
    alone, _ = login(offers, scopes=("write",))
    assert alone.facts.scopes == ("write", "offline_access"), "the first one takes these alone"


def test_logins_that_requested_a_scope_are_counted_for_one_account() -> None:
    known = {TOKEN: {"access_token": "at", "id_token": "e.eyJzdWIiOiJhbm4ifQ.s"}}
    made, _ = login(known)
    for count in (1, 2, 3):
        made, _ = login(known, before=made, scopes=("write",))
        assert made.asked == {"write": count}
    made, _ = login(known, before=made)
    assert made.asked == {"write": 3}, "a plain login changes nothing"
    stranger = {TOKEN: {"access_token": "at", "id_token": "e.eyJzdWIiOiJib2IifQ.s"}}
    assert login(stranger, before=made, scopes=("write",))[0].asked == {"write": 1}
    assert login(before=made, scopes=("write",))[0].asked == {"write": 4}, "an unknown account"


def test_too_many_scopes_are_refused_unless_the_person_chooses() -> None:
    many = Challenge(problem="1000 scopes at once, more than 50")
    with pytest.raises(LoginError, match=r"requires 1000 scopes at once.*--scope"):
        login(challenge=many)
    assert login(challenge=many, scopes=("read",))[0].facts.scopes == ("read",)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (issuer(code_challenge_methods_supported=["plain"]), "does not support PKCE"),
        ({**issuer(), "code_challenge_methods_supported": None}, "does not support PKCE"),
        (issuer(authorization_endpoint=None), "has no authorization_endpoint"),
    ],
)
def test_a_person_needs_a_page_and_pkce(metadata: dict[str, Any], said: str) -> None:
    with pytest.raises(LoginError, match=said):
        login({METADATA: metadata})


def test_a_registered_client_is_used_again_and_registered_again_if_its_port_is_taken() -> None:
    clients = KnownClients()
    login(clients=clients)
    _, played = login(clients=clients)
    assert f"{ISSUER}/register" not in played.urls
    _, played = login(clients=clients, bind=lambda port: 0 if port == 5000 else 6000)
    assert played.requests[-2].json["redirect_uris"] == ["http://127.0.0.1:6000/callback"]
    assert clients.known[ISSUER].port == 6000


def test_a_configured_client_goes_before_a_described_one_and_that_before_registration() -> None:
    described = issuer(client_id_metadata_document_supported=True)
    _, played = login({METADATA: described}, client_metadata_url="https://me.test/client.json")
    form = played.requests[-1].form
    assert form is not None
    assert form["client_id"] == "https://me.test/client.json"
    _, played = login(client_id="mine", client_secret="a b")
    assert "client_id" not in (played.requests[-1].form or {})
    assert played.requests[-1].headers["authorization"] == "Basic bWluZTphJTIwYg=="
    _, played = login(client_metadata_url="https://me.test/client.json")
    assert f"{ISSUER}/register" in played.urls


def test_without_any_identity_the_error_says_what_to_configure() -> None:
    with pytest.raises(LoginError, match=r"register Portico there.*set client_id"):
        login({METADATA: issuer(registration_endpoint=None)})
    with pytest.raises(LoginError, match=r"registration .* failed: no more; set client_id"):
        login({f"{ISSUER}/register": (400, {"error_description": "no more"})})
    with pytest.raises(LoginError, match="has no client_id"):
        login({f"{ISSUER}/register": (201, {"client_id": 5})})
    with pytest.raises(LoginError, match="port 7000 is in use"):
        login(bind=lambda port: 0, redirect_port=7000)


def test_a_configured_client_is_not_sent_to_an_issuer_that_was_exchanged() -> None:
    before, _ = login(client_id="mine")
    other = "https://new.test"
    moved = {
        "https://api.test/.well-known/oauth-protected-resource/mcp": {
            "resource": SERVER,
            "authorization_servers": [other],
        },
        f"{other}/.well-known/oauth-authorization-server": issuer(other),
        f"{other}/register": {"client_id": "made-again"},
        f"{other}/token": WELL_KNOWN[TOKEN],
    }
    with pytest.raises(LoginError, match=r"is now https://new\.test, and auth\.client_id is for"):
        login(moved, before=before, client_id="mine")
    registered, _ = login()
    again, played = login(moved, before=registered)
    assert f"{other}/register" in played.urls
    assert again.client.id == "made-again"


@pytest.mark.parametrize(
    ("response", "said"),
    [
        ({"state": "other"}, "is not that of this login"),
        ({"state": None}, "is not that of this login"),
        ({"iss": "https://evil.test", "error": "EVIL"}, "came from another authorization server"),
        ({"code": None, "error": "access_denied"}, "was denied: access_denied"),
        ({"code": None, "error": "x", "error_description": "so\x1b[2J"}, "refused the login: so"),
        ({"code": ""}, "has no code"),
    ],
)
def test_a_wrong_response_is_refused_and_another_issuer_says_nothing(
    response: dict[str, str | None], said: str
) -> None:
    with pytest.raises(LoginError, match=said) as caught:
        login(visit=allow(**response))
    assert "EVIL" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_an_issuer_that_always_names_itself_must_do_so() -> None:
    names = {METADATA: issuer(authorization_response_iss_parameter_supported=True)}
    with pytest.raises(LoginError, match="came from another authorization server"):
        login(names)
    assert login(names, allow(iss=ISSUER))[0].value == "Bearer at"


def test_a_client_that_its_issuer_has_forgotten_is_registered_once_more() -> None:
    clients = KnownClients(**{ISSUER: OwnClient("old", port=5000)})
    visits: list[str] = []

    def visit(wanted: Visit) -> str:
        visits.append(wanted.url)
        forgotten = "client_id=old" in wanted.url
        return allow(error="invalid_client" if forgotten else None)(wanted)

    made, _ = login(clients=clients, visit=visit)
    assert (made.client.id, len(visits)) == ("made", 2)
    with pytest.raises(GrantRefused):
        login(visit=allow(error="invalid_client"))


def test_the_same_account_keeps_its_id_and_an_unknown_one_gets_a_new_one() -> None:
    def as_person(sub: str) -> dict[str, Any]:
        claims = urlsafe(f'{{"sub": "{sub}", "email": "{sub}@x.test"}}')
        return {TOKEN: {"access_token": "a", "token_type": "bearer", "id_token": f"e.{claims}.s"}}

    first, _ = login(as_person("ann"))
    assert first.facts.account == "ann@x.test"
    assert login(as_person("ann"), before=first)[0].facts.id == first.facts.id
    assert login(as_person("bob"), before=first)[0].facts.id != first.facts.id
    unknown, _ = login()
    assert login(before=unknown)[0].facts.id != unknown.facts.id


def urlsafe(text: str) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {"token_type": "bearer"}), "no usable access token"),
        ((200, {"access_token": "a\r\nX: y", "token_type": "bearer"}), "no usable access token"),
        ((200, {"access_token": "a", "token_type": "DPoP"}), "issues DPoP tokens"),
        ((200, b"<html>"), "HTTP 200 instead of a token"),
        ((400, {"error": "invalid_grant", "error_description": "gone"}), "a token: gone"),
    ],
)
def test_an_answer_without_a_usable_token_ends_the_login(answer: Any, said: str) -> None:
    with pytest.raises(LoginError, match=said):
        login({TOKEN: answer})


@pytest.mark.parametrize(
    ("value", "found"),
    [(None, 0), (-5, 0), (0, 0), ("60", 60), ("soon", 0), (True, 0), (1e300, 316224000), ([], 0)],
)
def test_a_lifetime_is_a_number_or_unknown(value: object, found: float) -> None:
    assert seconds(value) == found


def test_a_refresh_keeps_what_the_server_does_not_replace() -> None:
    made, _ = login({TOKEN: {"access_token": "a", "token_type": "bearer", "refresh_token": "r1"}})
    assert made.fresh_until == float("inf"), "its life is unknown"
    played = Played({TOKEN: {"access_token": "b", "token_type": "bearer", "expires_in": 3600}})
    again = made.renewed(played.run(refresh_grant(made.endpoint, made.refresh, SERVER)), NOW)
    assert (again.access, again.refresh, again.fresh_until) == ("b", "r1", NOW + 3540)
    form = played.requests[0].form
    assert form is not None
    assert (form["refresh_token"], form["resource"], form["client_id"]) == ("r1", SERVER, "made")
    with pytest.raises(IssuerUnavailable):
        Played({TOKEN: (503, b"")}).run(refresh_grant(made.endpoint, "r1", SERVER))


def test_the_end_of_a_login_is_known_where_the_server_tells_it() -> None:
    told = {"access_token": "a", "token_type": "bearer", "expires_in": 60}
    assert login({TOKEN: told})[0].facts.ends == NOW + 60, "without a refresh token"
    told |= {"refresh_token": "r", "refresh_token_expires_in": 86400}
    assert login({TOKEN: told})[0].facts.ends == NOW + 86400


def test_a_logout_revokes_both_tokens() -> None:
    made, _ = login({TOKEN: {"access_token": "a", "token_type": "bearer", "refresh_token": "r1"}})
    played = Played({f"{ISSUER}/revoke": (200, b"")})
    played.run(revoke(made))
    assert [(one.form or {})["token"] for one in played.requests] == ["r1", "a"]


def test_nothing_secret_is_in_a_repr() -> None:
    made, played = login({TOKEN: {"access_token": "s3cret", "token_type": "bearer"}})
    assert "s3cret" not in repr(made)
    assert "c0de" not in repr(played.requests)
