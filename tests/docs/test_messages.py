"""The texts of the source are found, and those with wording to avoid are listed as advice."""

from textwrap import dedent

import pytest

from tools.messages import Text, texts_of
from tools.wording import advice, check


def _found(source: str) -> list[tuple[str, str]]:
    return [(text.kind, text.words) for text in texts_of({"x.py": dedent(source)})]


def test_an_f_string_shows_its_placeholders_and_its_choices() -> None:
    source = """raise OSError(f"{path.name}: {len(all)} byte{'' if one else 's'} {x or 'lost'}")"""
    assert _found(source) == [("error", "{value}: {value} byte{|s} {value|lost}")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class Odd(OSError): ...\nOdd('word')", [("error", "word")]),
        ("parser.add_argument('--x', help='word')", [("help", "word")]),
        ("tool = {'description': 'word', 'other': 'word'}", [("model", "word")]),
        ("report('one' if x == 'two' else 'three')", [("report", "one"), ("report", "three")]),
        ("def words():\n    return ('a text', 'word')", [("text", "a text")]),
        ("x = f'{call(\"a b\")} c'", [("text", "{value} c"), ("text", "a b")]),
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


def test_advice_counts_all_texts_and_shows_the_first() -> None:
    texts = [Text("a.py", "error", words) for words in ("it is no file", "it was told", "it fails")]
    text = advice(check(texts), most=1)
    assert text == 'wording to improve: 2\na.py: it is no file\n    write "is not a ..."'


def test_names_in_quotes_and_placeholders_are_not_wording() -> None:
    assert check([Text("a.py", "error", "`asked` is not set: {who said}")]) == []
