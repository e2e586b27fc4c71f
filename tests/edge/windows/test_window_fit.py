"""What a window sends about its client: anything else than expected is ignored."""

from typing import Any

import pytest

from portico.edge.fit.exposure_choice import ExposureChoice
from portico.edge.windows.window_fit import kept_choice, to_keep, window_facts

CHOICE = ExposureChoice("search", "because", "a 1")


def test_a_choice_is_kept_as_it_was_made() -> None:
    assert kept_choice(to_keep(CHOICE)) == CHOICE


ODD: list[Any] = [
    *(None, 7, "search", [], {}, {"expose": "search"}, {"expose": "auto", "why": ""}),
    *({"expose": 7, "why": ""}, {"expose": "none", "why": "x"}, {"expose": "all", "why": None}),
]


@pytest.mark.parametrize("odd", ODD)
def test_a_choice_that_is_not_one_is_made_anew(odd: Any) -> None:
    assert kept_choice({"kept": odd}) is None
    assert kept_choice({}) is None


@pytest.mark.parametrize("odd", [None, 7, "x y", [], {}, "a" * 500, "\n"])
def test_odd_preferences_say_nothing_of_the_client(odd: Any) -> None:
    sent = {"expose": odd, "client": odd, "environment": odd}
    facts = window_facts(sent, "n", "v")
    assert (facts.expose, facts.given, facts.environment) == ("", "", "")
    assert (facts.name, facts.version) == ("n", "v")
