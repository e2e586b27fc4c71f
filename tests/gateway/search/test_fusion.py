"""Words and vectors become one score."""

from portico.gateway.search.vectors import fuse

WORDS = {0: 20.0, 1: 18.0}


def order(scores: dict[int, float]) -> list[int]:
    return sorted(scores, key=lambda place: -scores[place])


def test_a_near_meaning_lifts_what_words_hardly_tell_apart() -> None:
    assert order(fuse(WORDS, [0.1, 0.9])) == [1, 0]


def test_what_only_vectors_know_is_found_too() -> None:
    assert order(fuse(WORDS, [0.0, 0.0, 0.8]))[0] == 2


def test_where_vectors_tell_nothing_apart_the_order_of_words_stays() -> None:
    assert order(fuse(WORDS, [0.3, 0.3])) == [0, 1]
    assert fuse({}, []) == {}


def test_words_that_match_poorly_say_little() -> None:
    poor = fuse({0: 2.0}, [0.0, 0.2])
    good = fuse({0: 60.0}, [0.0, 0.2])
    assert order(poor) == [1, 0]
    assert order(good) == [0, 1]
