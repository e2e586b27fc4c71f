"""The exposed names of tools in a gateway."""

import re

from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog.exposed_names import exposed_names

_ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SERVERS = st.from_regex(r"[A-Za-z0-9-]{1,40}", fullmatch=True)


def test_a_name_that_fits_stays_as_it_is() -> None:
    assert exposed_names("git", ["git_log"]) == {"git_log": "git__git_log"}


def test_other_characters_become_underscores() -> None:
    assert exposed_names("fs", ["files/read.text"]) == {"files/read.text": "fs__files_read_text"}


def test_two_names_that_would_become_one_are_told_apart() -> None:
    found = exposed_names("fs", ["a.b", "a/b", "a_b"])
    assert found["a_b"] == "fs__a_b"
    assert len(set(found.values())) == 3


def test_a_long_name_is_cut_and_marked() -> None:
    long = "x" * 100
    exposed = exposed_names("git", [long])[long]
    assert len(exposed) == 64
    assert exposed.startswith("git__xxx")


@given(_SERVERS, st.lists(st.text(min_size=1), unique=True, max_size=30))
def test_names_are_legal_and_all_different(server: str, names: list[str]) -> None:
    found = exposed_names(server, names)
    assert list(found) != [] or not names
    assert set(found) == set(names)
    assert all(_ALLOWED.fullmatch(exposed) for exposed in found.values())
    assert len(set(found.values())) == len(names)


@given(_SERVERS, st.lists(st.text(min_size=1), unique=True, max_size=30))
def test_names_do_not_depend_on_their_order(server: str, names: list[str]) -> None:
    assert exposed_names(server, names) == exposed_names(server, reversed(names))
