"""The texts of the source are found, and those with wording to avoid are listed as advice."""

import pytest

from tools.wording import Text, advice, check, messages, prose


def found(source: str) -> list[str]:
    return [text.words for text in messages({"x.py": source})]


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("raise OSError(f'{path.name}: {len(all)} bytes')", ["{value}: {value} bytes"]),
        ("report('one thing' if x else 'and three')", ["one thing", "and three"]),
        ("x = f'{call(\"a b\")} c'", ["{value} c", "a b"]),
        ("x = 'a text that\\n goes on'", ["a text that goes on"]),
    ],
)
def test_a_string_that_looks_like_a_text_is_a_message(source: str, texts: list[str]) -> None:
    assert found(source) == texts


@pytest.mark.parametrize(
    "source",
    ['"""A docstring."""', "x['word']", "x = ' , '", 'x = """\n    some names to\n split"""'],
)
def test_a_string_that_nobody_reads_is_left_out(source: str) -> None:
    assert found(source) == []


def test_docstrings_and_comments_are_read_too() -> None:
    texts = prose({"x.py": 'def x():\n    """Return\n    nothing."""  # a comment\n'})
    assert [text.words for text in texts] == ["Return nothing.", "a comment"]


def test_advice_counts_all_texts_and_shows_the_first() -> None:
    texts = [Text("a.py", words) for words in ("it is no file", "it was told", "it fails")]
    text = advice(check(texts), most=1)
    assert text == 'wording to improve: 2\na.py: it is no file\n    write "is not a ..."'


def test_names_in_quotes_and_placeholders_are_not_wording() -> None:
    assert check([Text("a.py", "`asked` is not set: {who said}")]) == []
