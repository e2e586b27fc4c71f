"""The page of messages is that of the source, and its wording gets no worse."""

import re
from textwrap import dedent

import pytest

from tests.docs.pages import text_of
from tools.messages import CALLS, LEFT_OUT, NAMES, page, sources, texts, texts_of
from tools.wording import Found, check, counts, prose

ALLOWED: dict[str, int] = {}
"""Messages with wording to avoid, by package. These numbers only go down."""
ALLOWED_PROSE = 0
"""Docstrings and comments with wording to avoid. This number only goes down."""


def _found(source: str) -> list[tuple[str, str]]:
    return [(text.kind, text.words) for text in texts_of({"x.py": dedent(source)})]


def test_the_page_lists_the_messages_of_the_source() -> None:
    assert text_of("docs/messages.md") == page(), "run `make messages`"


def test_an_f_string_shows_its_placeholders_and_its_choices() -> None:
    source = """raise OSError(f"{path.name}: {len(all)} byte{'' if one else 's'} {x or 'lost'}")"""
    assert _found(source) == [("error", "{name}: {number of all} byte{|s} {x|lost}")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class Odd(OSError): ...\nOdd('word')", [("error", "word")]),
        ("parser.add_argument('--x', help='word')", [("help", "word")]),
        ("tool = {'description': 'word', 'other': 'word'}", [("model", "word")]),
        ("report('one' if x == 'two' else 'three')", [("report", "one"), ("report", "three")]),
        ("def words():\n    return ('a text', 'word')", [("text", "a text")]),
        ("x = f'{call(\"a b\")} c'", [("text", "{call} c"), ("text", "a b")]),
    ],
)
def test_a_text_is_found_by_where_it_goes_or_by_its_shape(
    source: str, expected: list[tuple[str, str]]
) -> None:
    assert _found(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "x: 'dict[str, int] | None' = None",
        "if x == 'two words' or x in ('a b', 'c d'): ...",
        "x.startswith('two words')",
        "x['two words']",
        "re.compile('two words')",
        "__all__ = ['two words']",
        "say('', 'bold cyan')",
    ],
)
def test_a_string_that_nobody_reads_is_left_out(source: str) -> None:
    assert _found(source) == []


@pytest.mark.parametrize("name", [*CALLS, *NAMES, *LEFT_OUT])
def test_every_name_in_the_tables_is_in_the_source(name: str) -> None:
    assert any(re.search(rf"\b{name}\b", source) for source in sources().values())


def _listed(found: list[Found]) -> str:
    return "\n".join(map(str, found))


def test_messages_are_worded_as_the_style_asks() -> None:
    found = check(texts())
    more = {name for name, count in counts(found).items() if count > ALLOWED.get(name, 0)}
    assert not more, _listed([each for each in found if each.text.package in more])


def test_docstrings_and_comments_are_worded_no_worse_than_before() -> None:
    found = check(prose())
    assert len(found) <= ALLOWED_PROSE, _listed(found)
