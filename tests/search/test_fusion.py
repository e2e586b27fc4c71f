"""Words and vectors become one ranking."""

from portico.search import Hit, fuse

WORDS = [Hit("a", 20.0, "s"), Hit("b", 18.0, "s")]


def test_a_near_meaning_lifts_what_words_hardly_tell_apart() -> None:
    found = fuse(WORDS, {("s", "b"): 0.9, ("s", "a"): 0.1}, limit=5)
    assert [hit.name for hit in found] == ["b", "a"]


def test_what_only_vectors_know_is_found_too() -> None:
    assert {hit.name for hit in fuse(WORDS, {("s", "c"): 0.8}, limit=5)} == {"a", "b", "c"}


def test_without_vectors_the_order_stays() -> None:
    assert [hit.name for hit in fuse(WORDS, {}, limit=5)] == ["a", "b"]
    assert fuse(WORDS, {}, limit=1)[0].name == "a"
    assert fuse([], {}, limit=5) == []


def test_an_exact_name_stays_first() -> None:
    exact = Hit("a", 2_020.0, "s")
    assert fuse([exact, WORDS[1]], {("s", "b"): 0.9, ("s", "a"): 0.1}, 1)[0].name == "a"
