"""The routing of resource URIs to servers."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog.clashes import clashes
from portico.core.catalog.resource_routing import ResourceRouting, ServerResources
from portico.core.catalog.uris import canonical, canonical_template, uri_pattern

_OURS = ["portico://a/file%3A%2F%2F%2Fa", "portico://b/data:,{}", "portico://elsewhere/x"]
_PAGES = ["ui://x/y", "ui://a--x/y", "UI://b%2D%2Dx", "ui:///", "ui://", "ui://{x}/y", "ui:x"]
_URIS = st.sampled_from(
    ["file:///a", "file:///b%20c", "memo://x?y=1#z", "data:,{}", "git://é/1", *_OURS, *_PAGES]
)
_LISTS = st.lists(_URIS, unique=True, max_size=4)


def test_the_first_to_list_a_uri_owns_it_and_the_second_is_shown_under_its_name() -> None:
    both = ResourceRouting(
        [ServerResources("a", ["file:///x"], []), ServerResources("b", ["file:///x"], [])]
    )
    assert both.exposed_uri("a", "file:///x") == "file:///x"
    assert both.exposed_uri("b", "file:///x") == "portico://b/file%3A%2F%2F%2Fx"
    assert both.resolve("portico://b/file%3A%2F%2F%2Fx") == ("b", "file:///x")
    assert both.resolve("file:///x") == ("a", "file:///x")


def test_a_listed_uri_is_its_listers_even_if_a_template_of_another_matches() -> None:
    owners = ResourceRouting(
        [ServerResources("a", [], ["file:///{name}"]), ServerResources("b", ["file:///x"], [])]
    )
    assert owners.owner("file:///x") == "b"
    assert owners.owner("file:///y") == "a"
    assert owners.owner("http://nobody") is None


def test_of_several_templates_that_match_the_most_literal_counts_and_not_the_first() -> None:
    owners = ResourceRouting(
        [
            ServerResources("a", [], ["memo://{+rest}", "git://{repo}/{path}", "x://{a}/z"]),
            ServerResources("b", [], ["memo://notes/{name}", "git://{repo}", "x://{a}/{b}"]),
        ]
    )
    assert owners.owner("memo://notes/x") == "b"
    assert owners.owner("memo://other/x") == "a"
    assert owners.owner("git://portico/readme") == "a"
    assert owners.owner("git://portico") == "b"
    assert owners.owner("x://y/z") == "a"


def test_a_template_without_a_scheme_owns_nothing_that_another_server_has() -> None:
    greedy = ServerResources(
        "greedy", [], ["{+anything}", "m{+rest}", "{scheme}://{+rest}", "mem{+o}/x"]
    )
    owners = ResourceRouting([greedy, ServerResources("b", ["file:///x"], ["memo://{name}"])])
    assert owners.owner("file:///x") == "b"
    assert owners.owner("memo://x") == "b"
    assert owners.owner("else://x") is None
    assert owners.fallback("else://x") == "greedy"
    assert owners.exposed_uri("b", "else://x") == "else://x"
    two = ResourceRouting([greedy, ServerResources("c", [], ["{+all}"])])
    assert two.fallback("else://x") is None


@pytest.mark.parametrize(
    "spelling",
    [
        "MEMO://Notes/x",
        "memo://notes/%78",
        "memo://n%6Ftes/x",
        "Memo://NOTES/%78",
        "memo://notes/x",
    ],
)
def test_another_spelling_of_a_uri_is_the_same_resource(spelling: str) -> None:
    listed = ServerResources("b", ["memo://notes/x"], [])
    family = ServerResources("b", [], ["memo://Notes/{name}"])
    thief = ServerResources(
        "thief", ["memo://notes/other"], ["MEMO://{+rest}", "{+anything}", "memo:{+x}"]
    )
    for honest in (listed, family):
        owners = ResourceRouting([thief, honest])
        assert owners.resolve(spelling) == ("b", spelling)
        assert owners.exposed_uri("thief", spelling).startswith("portico://thief/")


def test_nobody_else_can_have_what_begins_like_a_uri_of_ours() -> None:
    thief = ServerResources(
        "thief", ["portico://b/x", "portico://gone/x"], ["portico://{+x}", "PORTICO://{x}"]
    )
    owners = ResourceRouting([thief, ServerResources("b", ["file:///x"], [])])
    assert owners.resolve("portico://b/file%3A%2F%2F%2Fx") == ("b", "file:///x")
    assert owners.resolve("PORTICO://B/file%3A%2F%2F%2Fx") == ("b", "file:///x")
    for gone in ("portico://gone/x", "Portico://gone/x", "portico://gone/y"):
        assert owners.resolve(gone)[0] is None
        assert owners.fallback(gone) is None
    for uri in thief.uris:
        assert owners.resolve(owners.exposed_uri("thief", uri)) == ("thief", uri)


def test_the_text_of_a_template_is_its_own_servers_also_if_another_lists_it_as_a_resource() -> None:
    text = "memo://notes/{name}"
    owners = ResourceRouting(
        [ServerResources("thief", [text], []), ServerResources("b", [], [text])]
    )
    assert owners.owner(text) == "b"
    assert owners.resolve(owners.exposed_uri("thief", text)) == ("thief", text)


def test_clashes_are_told_of_who_came_second_or_took_something() -> None:
    found = clashes(
        ResourceRouting(
            [
                ServerResources(
                    "a", ["file:///x", "file:///y"], ["memo://{+rest}", "git://{repo}"]
                ),
                ServerResources(
                    "b", ["FILE:///x", "file:///z"], ["memo://notes/{name}", "git://{repo}/{x}"]
                ),
                ServerResources("c", ["memo://notes/1"], ["{+any}", "memo://{+rest}"]),
            ]
        )
    )
    assert found == {
        "b": [
            "a, which comes first, also lists 1 resource of b (such as FILE:///x); "
            "exposed as portico://b/...",
            "URIs of template memo://notes/{name} of b match memo://{+rest} of a: b serves them",
            "URIs of template memo://notes/{name} of b match memo://{+rest} of c: b serves them",
        ],
        "c": [
            "a, which comes first, also lists 1 template of c (such as memo://{+rest}); "
            "exposed as portico://c/...",
            "resources of c match memo://notes/{name} of b: c serves them",
            "resources of c match memo://{+rest} of a: c serves them",
            "template {+any} of c has no scheme: it serves only URIs that no other server lists, "
            "matches or mentions",
        ],
    }
    assert clashes(ResourceRouting([ServerResources("a", ["x:y", "x:y"], ["x:{y}"])])) == {}


def test_two_servers_with_hundreds_of_templates_are_told_of_in_few_words() -> None:
    many = [ServerResources(name, [], [f"x:{n}{{+a}}" for n in range(500)]) for name in ("a", "b")]
    found = clashes(ResourceRouting(many))
    assert len(found["b"]) <= 20


def test_templates_without_number_are_listed_but_not_all_matched() -> None:
    many = [f"x{number}://{{id}}" for number in range(10_000)]
    owners = ResourceRouting(
        [ServerResources("a", [], many), ServerResources("b", [], ["y://{id}"])]
    )
    assert owners.owner("x7://1") == "a"
    assert owners.owner("x9999://1") is None
    assert owners.owner("x9999://{id}") == "a"
    assert owners.owner("y://1") == "b"


def test_a_second_template_can_still_be_filled_in() -> None:
    owners = ResourceRouting(
        [ServerResources("a", [], ["file:///{name}"]), ServerResources("b", [], ["file:///{name}"])]
    )
    exposed = owners.exposed_uri("b", "file:///{name}")
    assert exposed == "portico://b/file:///{name}"
    assert owners.resolve(exposed.replace("{name}", "a%20b")) == ("b", "file:///a%20b")


def test_what_another_portico_shows_under_a_name_that_is_here_too_stays_its_own() -> None:
    theirs = "portico://git/repo%3A%2F%2Fx"
    owners = ResourceRouting(
        [
            ServerResources("git", ["repo://x"], []),
            ServerResources("portico", ["repo://x", theirs], []),
        ]
    )
    exposed = owners.exposed_uri("portico", theirs)
    assert (
        owners.exposed_uri("portico", "portico://far/x")
        == "portico://portico/portico%3A%2F%2Ffar%2Fx"
    )
    assert owners.resolve(exposed) == ("portico", theirs)
    assert owners.resolve(theirs) == ("git", "repo://x")


def test_a_portico_uri_of_no_server_is_nobodys() -> None:
    owners = ResourceRouting([ServerResources("a", ["file:///x"], [])])
    assert owners.resolve("portico://gone/file%3A%2F%2F%2Fx")[0] is None
    assert owners.resolve("portico://")[0] is None


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "a--b", "a-", "-", "B"]), _LISTS))
def test_what_is_shown_leads_back_to_its_own_server(servers: dict[str, list[str]]) -> None:
    owners = ResourceRouting(ServerResources(name, uris, ()) for name, uris in servers.items())
    exposed = [owners.exposed_uri(name, uri) for name, uris in servers.items() for uri in uris]
    assert len(set(exposed)) == len(exposed)
    back = [owners.resolve(uri) for uri in exposed]
    assert back == [(name, uri) for name, uris in servers.items() for uri in uris]


_AUTHORITIES = st.lists(
    st.sampled_from(["a", "b", "-", "--", "%2D", "%2d", "A", "x", "a--b", "/", "?", "@", ":1"])
).map("".join)


@given(
    st.lists(_AUTHORITIES, unique=True, max_size=3), st.sampled_from(["ui://", "UI://", "Ui://"])
)
def test_a_page_of_each_of_several_servers_leads_back_to_it(texts: list[str], start: str) -> None:
    pages = [f"{start}{text}" for text in texts]
    names = ["a", "b", "a--b", "a-", "-a", "--", "a-b"]
    owners = ResourceRouting(ServerResources(name, pages, ()) for name in names)
    shown = {(name, page): owners.exposed_uri(name, page) for name in names for page in pages}
    back = {claim: owners.resolve(uri) for claim, uri in shown.items()}
    for (name, page), (server, own) in back.items():
        # Two spellings of one URI are the same resource.
        assert (server, canonical(own)) == (name, canonical(page))
        assert owners.canonical_exposed(shown[name, page]) == shown[name, page]


def test_a_second_page_is_a_page_too() -> None:
    pages = ["ui://budget/page.html", "ui://{app}/page.html"]
    owners = ResourceRouting([ServerResources(name, pages[:1], pages[1:]) for name in ("a", "b")])
    assert owners.exposed_uri("a", pages[0]) == pages[0]
    assert owners.exposed_uri("b", pages[0]) == "ui://b--budget/page.html"
    assert owners.exposed_uri("b", pages[1]) == "ui://b--{app}/page.html"
    assert owners.resolve("ui://b--chart/page.html") == ("b", "ui://chart/page.html")
    assert owners.resolve("UI://B--chart/page.html") == ("b", "UI://chart/page.html")
    assert owners.canonical_exposed("ui://a--budget/page.html") == pages[0]
    assert clashes(owners)["b"] == [
        "a, which comes first, also lists 1 resource of b (such as ui://budget/page.html); "
        "exposed as ui://b--...",
        "a, which comes first, also lists 1 template of b (such as ui://{app}/page.html); "
        "exposed as ui://b--...",
        "resources of b match ui://{app}/page.html of a: a serves them",
    ]


def test_a_page_that_could_be_read_as_anothers_is_shown_in_the_other_form() -> None:
    page = "ui://server--app/page.html"
    owners = ResourceRouting([ServerResources(name, [page], []) for name in ("my", "my--server")])
    assert owners.exposed_uri("my", page) == page
    third = ResourceRouting(
        [ServerResources(name, [page], []) for name in ("first", "my", "my--server")]
    )
    exposed = third.exposed_uri("my", page)
    assert exposed.startswith("portico://my/")
    assert third.resolve(exposed) == ("my", page)
    assert third.resolve(third.exposed_uri("my--server", page)) == ("my--server", page)


def test_a_page_with_hyphens_without_number_is_resolved_at_once() -> None:
    owners = ResourceRouting([ServerResources(name, ["ui://x"], []) for name in ("a", "b")])
    page = f"ui://{'-' * 1_000_000}"
    assert owners.resolve(page) == (None, page)
    assert owners.resolve(owners.exposed_uri("b", f"ui://b--{page}")) == ("b", f"ui://b--{page}")


_TEXTS = st.lists(
    st.sampled_from(["m:", "M:", "//", "n/", "x", "%78", "{a}", "{b}", "{+c}", "{?q}", "N"]),
    min_size=1,
    max_size=6,
).map("".join)
_ANY = st.lists(_TEXTS, unique=True, max_size=3)
_SERVERS = st.lists(st.tuples(_LISTS, _ANY), min_size=2, max_size=4)
_ASKED = st.lists(st.sampled_from(["m:", "M:", "//", "n/", "x", "y", "%78", "?q=1"]), max_size=6)


@given(_SERVERS, _ASKED.map("".join) | _URIS, st.randoms())
def test_the_order_of_servers_counts_only_between_equals(
    servers: list[tuple[list[str], list[str]]], uri: str, random: Random
) -> None:
    owned = [ServerResources(f"s{n}", uris, texts) for n, (uris, texts) in enumerate(servers)]
    other = random.sample(owned, len(owned))
    first, second = ResourceRouting(owned), ResourceRouting(other)
    a, b = first.owner(uri), second.owner(uri)
    assert first.fallback(uri) == second.fallback(uri)
    if a == b:
        return
    assert a is not None
    assert b is not None
    one, two = (_claim(first.servers[name], uri) for name in (a, b))
    assert one == two
    # Among equals the first in the config owns it.
    assert list(first.servers).index(a) < list(first.servers).index(b)
    assert list(second.servers).index(b) < list(second.servers).index(a)


def _claim(owned: ServerResources, uri: str) -> object:
    """Rank a server's claim on a URI."""
    same = canonical(uri)
    if same in map(canonical, owned.uris):
        return "listed"
    if canonical_template(uri) in map(canonical_template, owned.templates):
        return "its very text"
    patterns = [found for text in owned.templates if (found := uri_pattern(text)) is not None]
    return max(one.rank for one in patterns if one.has_scheme and one.matches(same))


@given(_ASKED.map("".join))
def test_a_canonical_uri_stays_as_it_is(uri: str) -> None:
    assert canonical(canonical(uri)) == canonical(uri)
    assert canonical_template(uri) == canonical(uri)
