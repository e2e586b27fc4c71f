"""URI templates: matching, expanding, and invalid templates."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.templates import UriTemplate


def match(template: str, uri: str) -> dict[str, str] | None:
    return UriTemplate(template).match(uri)


# Matching.


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("test://static", "test://static", {}),
        ("test://static", "test://statics", None),
        ("test://template/{id}/data", "test://template/7/data", {"id": "7"}),
        ("test://template/{id}/data", "test://template//data", None),
        ("test://template/{id}/data", "test://template/7/8/data", None),
        ("test://template/{id}/data", "test://template/7/data/", None),
        ("test://{a}", "test://x?y", None),
        ("test://{a}", "test://x#y", None),
        ("mail://{address}", "mail://a@b.c", {"address": "a@b.c"}),
        ("x://{a}/{b}", "x://1/2", {"a": "1", "b": "2"}),
        ("x://{a}-{b}", "x://1-2-3", {"a": "1-2", "b": "3"}),
        ("x://{name}.{ext}", "x://a.tar.gz", {"name": "a.tar", "ext": "gz"}),
        ("x://{name}.json", "x://a.json.json", {"name": "a.json"}),
        ("x://{name}.json", "x://.json", None),
        ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
        ("x://{a,b}", "x://1", None),
        ("x://{a}/{a}", "x://1/1", {"a": "1"}),
        ("x://{a}/{a}", "x://1/2", None),
        ("{a}://x", "y://x", {"a": "y"}),
        ("{scheme}:x", "y:x", {"scheme": "y"}),
    ],
)
def test_a_plain_variable_is_one_segment(
    template: str, uri: str, values: dict[str, str] | None
) -> None:
    assert match(template, uri) == values


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("file:///{+path}", "file:///a/b/c.txt", {"path": "a/b/c.txt"}),
        ("file:///{+path}", "file:///a?b#c", {"path": "a?b#c"}),
        ("file:///{+path}", "file:///", None),
        ("file:///{+path}", "http://a", None),
        ("file:///{path*}", "file:///a/b", {"path": "a/b"}),
        ("file:///{path*}", "file:///a?b", None),
        ("x://{host}/{+path}/raw", "x://h/a/b/raw", {"host": "h", "path": "a/b"}),
        ("x://{host}/{+path}/raw", "x://h/raw", None),
        ("x://{+path}/{name}.{ext}", "x://a/b/c.d", {"path": "a/b", "name": "c", "ext": "d"}),
        ("x://a{/rest*}", "x://a", {}),
        ("x://a{/rest*}", "x://a/b/c", {"rest": "b/c"}),
        ("x://a{/rest*}", "x://ab/c", None),
        ("x://{a}{/rest*}", "x://1/2/3", {"a": "1", "rest": "2/3"}),
        ("{+uri}", "https://a/b?c#d", {"uri": "https://a/b?c#d"}),
    ],
)
def test_one_variable_may_span_segments(
    template: str, uri: str, values: dict[str, str] | None
) -> None:
    assert match(template, uri) == values


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("x://s{/a,b}", "x://s", {}),
        ("x://s{/a,b}", "x://s/1", {"a": "1"}),
        ("x://s{/a,b}", "x://s/1/2", {"a": "1", "b": "2"}),
        ("x://s{/a,b}", "x://s/1/2/3", None),
        ("x://s{/a}", "x://s/", None),
        ("x://{a}/{b}{/a}", "x://1/2/1", {"a": "1", "b": "2"}),
        ("x://{a}/{b}{/a}", "x://1/2/3", None),
        ("x://s{/a}", "x://s/1?q", None),
        ("x://{a}{/b}", "x://1/2", {"a": "1", "b": "2"}),
        ("x://s{?q,n}", "x://s", {}),
        ("x://s{?q,n}", "x://s?q=1", {"q": "1"}),
        ("x://s{?q,n}", "x://s?n=2&q=1", {"q": "1", "n": "2"}),
        ("x://s{?q,n}", "x://s?q=", {"q": ""}),
        ("x://s{?q,n}", "x://s?other=1", None),
        ("x://s{?q,n}", "x://s?q=1&q=2", None),
        ("x://s{?q,n}", "x://s?q", None),
        ("x://s?v=1{&q}", "x://s?v=1", {}),
        ("x://s?v=1{&q}", "x://s?v=1&q=2", {"q": "2"}),
        ("x://s?v=1{&q}", "x://s?v=2&q=2", None),
        ("x://s{?a}{&b}", "x://s?b=2&a=1", {"a": "1", "b": "2"}),
        ("x://s{#f}", "x://s#top", {"f": "top"}),
        ("x://s{#f}", "x://s", {}),
        ("x://s{/a}{?q}{#f}", "x://s/1?q=2#3", {"a": "1", "q": "2", "f": "3"}),
        ("x://s?q={q}&n={n}", "x://s?q=a/b&n=2", {"q": "a/b", "n": "2"}),
        ("x://s?q={q}&n={n}", "x://s?q=1&n=2&admin=1", None),
        ("x://{a}?q={q}", "x://1?q=2?q=3", None),
    ],
)
def test_what_comes_last_may_be_left_out(
    template: str, uri: str, values: dict[str, str] | None
) -> None:
    assert match(template, uri) == values


def test_values_are_decoded() -> None:
    assert match("x://{a}", "x://caf%C3%A9%20%2F%2e") == {"a": "café /."}
    assert match("x://s{?q}", "x://s?q=a%26b+c") == {"q": "a&b+c"}


def test_what_decodes_to_no_text_does_not_match() -> None:
    assert match("x://{a}", "x://%ff%fe") is None


def test_variables_are_known_in_order() -> None:
    template = UriTemplate("x://{a}/{+b}/{c}{?d,e}{#f}")

    assert template.variables == ("a", "b", "c", "d", "e", "f")
    assert template.optional == ("d", "e", "f")


# Invalid templates.


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("x://{a", "has a { without a }"),
        ("x://a}", "has a } without a {"),
        ("x://{}", '"" is not a variable name'),
        ("x://{a,}", '"" is not a variable name'),
        ("x://{é}", "is not a variable name"),
        ("x://{a}{b}", "{b} needs text between it and the previous variable"),
        ("x://{+a}{b}", "{b} needs text"),
        ("x://{a}{+b}", "{+b} needs text"),
        ("x://{+a}/{+b}", "{+b} is a second variable that may span segments"),
        ("x://{+a,b}", "{+a,b} can have only one variable"),
        ("x://{a*}/{b}{/c*}", "{/c*} is a second variable"),
        ("x://{a,a}", "names a variable twice"),
        ("x://{.a}", 'operator "." is not supported'),
        ("x://{;a}", 'operator ";" is not supported'),
        ("x://{a:3}", "prefixes (:) are not supported"),
        ("x://{?a*}", "* is only supported as in"),
        ("x://{a*,b}", "* is only supported as in"),
        ("x://{?a}/b", '"/b" follows an expression that must be last'),
        ("x://{/a}/b", '"/b" follows an expression that must be last'),
        ("x://{?a}{b}", "{b} follows an expression that must be last"),
        ("x://{#a}{?b}", "{?b} follows an expression that must be last"),
        ("x://{?a}{?b}", "{?b} follows"),
        ("x://{&a}", "{&a} must be {?...} here"),
        ("x://?a{?b}", "{?b} must be {&...} here"),
        ("x://#a{#b}", '{#b} follows a "#"'),
        ("x://a b", "contains a space"),
        ("x://a\n", "contains a space or a control character"),
        ("x://" + "a" * 5000, "is longer than 4096 characters"),
        ("x://" + "/".join(f"{{v{n}}}" for n in range(40)), "has more than 32 variables"),
    ],
)
def test_a_template_that_reads_in_no_way_or_several_is_refused(template: str, reason: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        UriTemplate(template)

    assert reason in str(caught.value)


# Expanding: the supported examples of RFC 6570.

VALUES = {
    "var": "value",
    "hello": "Hello World!",
    "half": "50%",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "x": "1024",
    "y": "768",
    "empty": "",
    "who": "fred",
    "undef": None,
}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("O{empty}X", "OX"),
        ("O{undef}X", "OX"),
        ("{x,y}", "1024,768"),
        ("?{x,empty}", "?1024,"),
        ("?{x,undef}", "?1024"),
        ("{+var}", "value"),
        ("{+hello}", "Hello%20World!"),
        ("{+half}", "50%25"),
        ("{+base}index", "http://example.com/home/index"),
        ("here?ref={+path}", "here?ref=/foo/bar"),
        ("up{+path}up/{x}", "up/foo/barup/1024"),
        ("X{#var}", "X#value"),
        ("X{#hello}", "X#Hello%20World!"),
        ("foo{#empty}", "foo#"),
        ("foo{#undef}", "foo"),
        ("{/who}", "/fred"),
        ("{/half,who}", "/50%25/fred"),
        ("{/var,empty}", "/value/"),
        ("{/var,undef}", "/value"),
        ("{?who}", "?who=fred"),
        ("{?half}", "?half=50%25"),
        ("{?x,y}", "?x=1024&y=768"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("{?x,y,undef}", "?x=1024&y=768"),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("?fixed=yes{&x,y}", "?fixed=yes&x=1024&y=768"),
        ("a/{path*}", "a//foo/bar"),
    ],
)
def test_a_template_expands_as_the_rfc_has_it(template: str, uri: str) -> None:
    assert UriTemplate(template).expand(VALUES) == uri


def test_what_is_encoded_already_stays_in_a_reserved_expansion() -> None:
    assert UriTemplate("{+a}").expand({"a": "%41%zz%"}) == "%41%25zz%25"


TEMPLATES = [
    "x://{a}/{b}",
    "x://{a}-{b}.json",
    "x://{a,b}/c",
    "x://h/{a*}/end/{b}",
    "x://s{/a,b}",
    "x://s{?a,b}",
    "x://s?v=1{&a,b}",
    "x://{a}{#b}",
    "x://{a}{/b*}",
]
values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.sampled_from(TEMPLATES), values, values)
def test_what_was_expanded_matches(template: str, a: str, b: str) -> None:
    # `{#b}` keeps what looks encoded, and unreserved text between variables may also be in them.
    assume("%" not in a + b and "/" not in a + b and "-" not in a + b and ".json" not in a + b)
    given = {"a": a, "b": b}

    assert match(template, UriTemplate(template).expand(given)) == given


@given(st.text(st.sampled_from("ab/?#&={}+*,"), max_size=20), st.text(max_size=30))
def test_any_text_is_a_template_or_refused_and_then_matches_or_not(template: str, uri: str) -> None:
    try:
        found = UriTemplate(template)
    except DefinitionError:
        return
    matched = found.match(uri)

    assert matched is None or matched.keys() <= set(found.variables)


def naive(template: list[str], uri: str) -> bool:
    """Match by trying every split: texts, and "" for a variable of one segment."""
    if not template:
        return not uri
    head, rest = template[0], template[1:]
    if head:
        return uri.startswith(head) and naive(rest, uri[len(head) :])
    ends = range(1, len(uri) + 1)
    return any("/" not in uri[:end] and naive(rest, uri[end:]) for end in ends)


parts = st.lists(st.text("a/.", min_size=1, max_size=3), min_size=1, max_size=4)


@given(parts, st.text("ab/.", max_size=14), st.booleans(), st.booleans())
def test_never_going_back_finds_every_match(
    texts: list[str], uri: str, starts: bool, ends: bool
) -> None:
    pieces: list[str] = [""] if starts else []
    for text in texts:
        pieces += [text, ""]
    pieces = pieces if ends else pieces[:-1]
    template = "".join(piece or f"{{v{index}}}" for index, piece in enumerate(pieces))

    assert (match(template, uri) is not None) is naive(pieces, uri)


# Time.


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("x://{a}-{b}-{c}-{d}.json", "x://" + "-" * 100_000),
        ("x://" + "a".join(f"{{v{n}}}" for n in range(32)) + "!", "x://" + "a" * 100_000),
        ("x://{+p}/{a}/{b}", "x://" + "/" * 100_000),
        ("x://{+p}a{b}a{c}!", "x://" + "a" * 100_000),
        ("x://{a}{/b,c,d,e,f,g,h}", "x://" + "a/" * 50_000),
        ("x://{a}{/b*}", "x://" + "/" * 100_000),
        ("x://{a}{?b,c}", "x://a?" + "b=1&" * 25_000),
        ("x://a?z=1{&b,c}", "x://a?z=1" + "&b=1" * 25_000),
        ("x://{a}", "x://" + "%41" * 33_000 + "/"),
    ],
)
def test_adversarial_uris_of_100_kb_take_no_time(template: str, uri: str) -> None:
    found = UriTemplate(template)
    for _ in range(100):  # anything worse than linear would take minutes
        assert found.match(uri) is None
