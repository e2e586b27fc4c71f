"""A misspelt name finds the one that was meant."""

import pytest

from portico.search.near_names import NearNames

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
    assert NearNames(NAMES).near(written)[0] == meant


@pytest.mark.parametrize("written", ["", "zzz", "🦄", "\0", "q" * 100_000])
def test_what_is_like_nothing_finds_nothing(written: str) -> None:
    assert NearNames(NAMES).near(written) == []


def test_no_more_than_asked_and_each_once() -> None:
    assert len(NearNames(["ab", "ab", "abc", "abd"]).near("ab", 2)) == 2
    assert NearNames(["ab", "ab"]).near("ab", 9) == ["ab"]
    assert NearNames([]).near("ab") == []
    assert NearNames(NAMES).near("mail__send", 0) == []
