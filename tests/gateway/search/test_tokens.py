"""Text becomes terms."""

from unicodedata import normalize

import pytest

from portico.gateway.search.tokens import MAX_TEXT, STOP, parts, stem, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("send_message", ["send", "messag"]),
        ("send-message", ["send", "messag"]),
        ("sendDirectMessage", ["send", "direct", "messag"]),
        ("HTTPServer2", ["http", "server", "2"]),
        ("parse report.pdf", ["pars", "report", "pdf"]),
        ("GitHub", ["git", "hub", "github"]),
        ("the and of", []),
        ("", []),
        ("!?", []),
        ("Größe", ["größ"]),
        ("搜索结果", ["搜索", "索结", "结果"]),
        ("图", ["图"]),
        ("用Python写", ["用", "python", "写"]),
    ],
)
def test_names_are_split_as_programmers_write_them(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    "words",
    [
        ("query", "queries"),
        ("file", "files"),
        ("search", "searches", "searching", "searched"),
        ("stop", "stops", "stopped", "stopping"),
        ("create", "creates", "created", "creating"),
        ("address", "addresses"),
    ],
)
def test_forms_of_one_word_have_one_stem(words: tuple[str, ...]) -> None:
    assert len({stem(word) for word in words}) == 1


@pytest.mark.parametrize("word", ["status", "analysis", "bus", "red", "king", "gas", "sing"])
def test_what_only_looks_like_an_ending_stays(word: str) -> None:
    assert stem(word).startswith(word[:3])


@pytest.mark.parametrize(
    ("written", "usual"),
    [
        ("\uff30\uff24\uff26", "pdf"),
        ("\ufb01le", "file"),
        ("cafe\u0301", "caf\u00e9"),
        ("한글", "한글"),
    ],
)
def test_however_a_letter_is_written_it_is_the_same(written: str, usual: str) -> None:
    assert terms(written) == terms(usual) == terms(normalize("NFD", usual))
    assert parts(written) == parts(usual)


def test_a_name_is_made_of_parts_without_the_joined_word() -> None:
    assert parts("GitHub_search_GitHub") == ["git", "hub", "search"]


def test_only_the_beginning_of_an_endless_text_is_read() -> None:
    assert len(terms("x " * 1_000_000)) == MAX_TEXT // 2


def test_stop_words_are_lower_case() -> None:
    assert all(word == word.lower() for word in STOP)
