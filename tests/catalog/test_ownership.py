"""Whose resource a URI is."""

from hypothesis import given
from hypothesis import strategies as st

from portico.catalog.ownership import Owned, Ownership

_OURS = ["portico://a/file%3A%2F%2F%2Fa", "portico://b/data:,{}", "portico://elsewhere/x"]
_URIS = st.sampled_from(
    ["file:///a", "file:///b%20c", "memo://x?y=1#z", "data:,{}", "git://é/1", *_OURS]
)
_LISTS = st.lists(_URIS, unique=True, max_size=4)


def test_the_first_to_list_a_uri_owns_it_and_the_second_is_shown_under_its_name() -> None:
    both = Ownership([Owned("a", ["file:///x"], []), Owned("b", ["file:///x"], [])])
    assert both.shown("a", "file:///x") == "file:///x"
    assert both.shown("b", "file:///x") == "portico://b/file%3A%2F%2F%2Fx"
    assert both.read("portico://b/file%3A%2F%2F%2Fx") == ("b", "file:///x")
    assert both.read("file:///x") == ("a", "file:///x")


def test_a_listed_uri_is_its_listers_even_if_a_template_of_another_matches() -> None:
    owners = Ownership([Owned("a", [], ["file:///{name}"]), Owned("b", ["file:///x"], [])])
    assert owners.owner("file:///x") == "b"
    assert owners.owner("file:///y") == "a"
    assert owners.owner("http://nobody") is None


def test_of_several_templates_that_match_the_first_servers_counts() -> None:
    owners = Ownership(
        [
            Owned("a", [], ["memo://{+rest}", "git://{repo}/{path}"]),
            Owned("b", [], ["memo://notes/{name}", "git://{repo}", "{+anything}"]),
        ]
    )
    assert owners.owner("memo://notes/x") == "a"
    assert owners.owner("git://portico/readme") == "a"
    assert owners.owner("git://portico") == "b"
    assert owners.owner("file:///x") == "b"


def test_templates_without_number_are_listed_but_not_all_matched() -> None:
    many = [f"x{number}://{{id}}" for number in range(10_000)]
    owners = Ownership([Owned("a", [], many), Owned("b", [], ["y://{id}"])])
    assert owners.owner("x7://1") == "a"
    assert owners.owner("x9999://1") is None
    assert owners.owner("x9999://{id}") == "a"
    assert owners.owner("y://1") == "b"


def test_a_second_template_can_still_be_filled_in() -> None:
    owners = Ownership([Owned("a", [], ["file:///{name}"]), Owned("b", [], ["file:///{name}"])])
    shown = owners.shown("b", "file:///{name}")
    assert shown == "portico://b/file:///{name}"
    assert owners.read(shown.replace("{name}", "a%20b")) == ("b", "file:///a%20b")


def test_what_another_portico_shows_under_a_name_that_is_here_too_stays_its_own() -> None:
    theirs = "portico://git/repo%3A%2F%2Fx"
    owners = Ownership([Owned("git", ["repo://x"], []), Owned("portico", ["repo://x", theirs], [])])
    shown = owners.shown("portico", theirs)
    assert owners.read(shown) == ("portico", theirs)
    assert owners.read(theirs) == ("git", "repo://x")


def test_a_portico_uri_of_no_server_is_nobodys() -> None:
    owners = Ownership([Owned("a", ["file:///x"], [])])
    assert owners.read("portico://gone/file%3A%2F%2F%2Fx")[0] is None
    assert owners.read("portico://")[0] is None


@given(st.dictionaries(st.sampled_from("abcd"), _LISTS))
def test_what_is_shown_leads_back_to_its_own_server(servers: dict[str, list[str]]) -> None:
    owners = Ownership(Owned(name, uris, ()) for name, uris in servers.items())
    shown = [owners.shown(name, uri) for name, uris in servers.items() for uri in uris]
    assert len(set(shown)) == len(shown)
    back = [owners.read(uri) for uri in shown]
    assert back == [(name, uri) for name, uris in servers.items() for uri in uris]
