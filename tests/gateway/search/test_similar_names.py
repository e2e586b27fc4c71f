"""A misspelt name finds the one that was meant."""

import pytest

from portico.gateway.search.similar_names import SimilarNames

NAMES = ["github__create_issue", "github__list_issues", "mail__send_email", "weather__forecast"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("github__create_isue", "github__create_issue"),
        ("githubCreateIssue", "github__create_issue"),
        ("mail_send_mail", "mail__send_email"),
        ("weather__forcast", "weather__forecast"),
        ("GITHUB__LIST_ISSUE", "github__list_issues"),
    ],
)
def test_the_likest_name_comes_first(written: str, meant: str) -> None:
    assert SimilarNames(NAMES).similar(written)[0] == meant


@pytest.mark.parametrize("written", ["", "zzz", "🦄", "\0", "q" * 100_000])
def test_what_is_like_nothing_finds_nothing(written: str) -> None:
    assert SimilarNames(NAMES).similar(written) == []


def test_no_more_than_asked_and_each_once() -> None:
    assert len(SimilarNames(["ab", "ab", "abc", "abd"]).similar("ab", 2)) == 2
    assert SimilarNames(["ab", "ab"]).similar("ab", 9) == ["ab"]
    assert SimilarNames([]).similar("ab") == []
    assert SimilarNames(NAMES).similar("mail__send", 0) == []
