"""Routing rules: their order, the keywords that match, and the rules that are rejected on load."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.config.agents_schema import RoutingRule, occurs
from tests.core.config.test_agents_tables import agents, problems

AGENTS = """[[agents]]
id = "a"
command = "a"
capabilities = ["code", "docs"]
[[agents]]
id = "b"
command = "b"
capabilities = ["code"]
"""


def rule(preferred: str, more: str = "", task_type: str = "code") -> str:
    return f'[[routing.rules]]\ntask_type = "{task_type}"\npreferred_agents = {preferred}\n{more}\n'


def test_rules_are_tried_by_priority_and_then_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = AGENTS + rule('["a"]', 'keywords = ["x"]') + rule('["b"]', 'keywords = ["y"]')
    found = agents(tmp_path, text + rule('["b", "a"]', 'keywords = ["z"]\npriority = 5'))
    assert [one.keywords for one in found.rules] == [("z",), ("x",), ("y",)]


@pytest.mark.parametrize(
    ("keyword", "prompt", "expected"),
    [
        ("test", "Write a TEST.", True),
        ("test", "the latest contest", False),
        ("unit test", "add a unit\n  test for it", True),
        ("unit test", "unit tests", False),
        ("c++", "port it to C++, please", True),
        ("c", "port it to c++", True),
        ("résumé", "My RE\u0301SUME\u0301 needs work", True),
        ("straße", "STRASSE", True),
        ("a.b", "axb", False),
    ],
)
def test_a_keyword_occurs_as_a_word(keyword: str, prompt: str, expected: bool) -> None:
    assert occurs(keyword, prompt) is expected


def test_a_rule_matches_its_type_and_one_of_its_keywords() -> None:
    one = RoutingRule(task_type="code", keywords=("fix", "bug"), preferred_agents=("a",))
    assert one.matches("code", "a bug")
    assert not one.matches("docs", "a bug")
    assert not one.matches("code", "nothing")
    assert one.keyword_in("a bug") == "bug"
    assert RoutingRule(task_type="code", preferred_agents=("a",)).matches("code", "")


@given(st.text(alphabet="ab c", min_size=1).filter(str.strip), st.text(alphabet="ab c"))
def test_a_keyword_is_in_a_prompt_if_its_words_are_in_it_in_a_row(word: str, prompt: str) -> None:
    wanted, there = word.split(), prompt.split()
    rows = [there[at : at + len(wanted)] for at in range(len(there))]
    assert occurs(word, prompt) is (wanted in rows)


def test_a_rule_that_could_choose_nothing_is_an_error_with_its_line(tmp_path: Path) -> None:
    text = (
        AGENTS
        + """[[routing.rules]]
task_type = "code"
preferred_agents = []
[[routing.rules]]
preferred_agents = ["a"]
[[routing.rules]]
task_type = "docs"
preferred_agents = ["b"]
[[routing.rules]]
task_type = "code"
preferred_agents = ["a", "qwen"]
keywords = ["x", ""]
[[routing.rules]]
task_type = "code"
preferred_agents = [
  "a",
  "bb",
]
"""
    )
    assert problems(tmp_path, text) == [
        "portico.toml:9: routing.rules[0]: has no preferred_agents, so it chooses nothing; "
        "add one, or remove it",
        "portico.toml:12: routing.rules[1]: has no task_type; "
        "add the type of task that the rule is for",
        "portico.toml:16: routing.rules[2].preferred_agents[0]: b does not have the capability "
        "docs; add it to the agent's capabilities, or remove the agent",
        "portico.toml:20: routing.rules[3].keywords[1]: is empty; set a value or remove it",
        "portico.toml:25: routing.rules[4].preferred_agents[1]: there is no agent bb; "
        "did you mean b?",
    ]


UNREACHABLE = "is never reached: the rules before it try the same agents for every prompt"


@pytest.mark.parametrize(
    ("first", "second", "is_reached"),
    [
        (rule('["a"]'), rule('["a"]'), False),
        (rule('["a", "b"]'), rule('["b"]', 'keywords = ["x"]'), False),
        (rule('["a"]', 'keywords = ["x", "y"]'), rule('["a"]', 'keywords = ["Y"]'), False),
        (rule('["a"]', 'keywords = ["test"]'), rule('["a"]', 'keywords = ["unit test"]'), False),
        # An agent that the first rule does not try makes the second one useful.
        (rule('["a"]'), rule('["a", "b"]'), True),
        (rule('["a"]', 'keywords = ["x"]'), rule('["a"]'), True),
        (rule('["a"]', 'keywords = ["unit test"]'), rule('["a"]', 'keywords = ["test"]'), True),
        (rule('["a"]'), rule('["a"]', task_type="docs"), True),
        (rule('["a"]'), rule('["a"]', 'keywords = ["x"]\npriority = 1'), True),
    ],
)
def test_a_rule_whose_agents_were_all_tried_before_is_an_error(
    first: str, second: str, is_reached: bool, tmp_path: Path
) -> None:
    text = AGENTS + first + second
    if is_reached:
        assert len(agents(tmp_path, text).rules) == 2
        return
    (found,) = problems(tmp_path, text)
    assert UNREACHABLE in found
    assert found.startswith("portico.toml:13: routing.rules[1]:")


def test_two_rules_together_can_make_a_third_unreachable(tmp_path: Path) -> None:
    text = AGENTS + rule('["a"]', 'keywords = ["x"]') + rule('["a"]', 'keywords = ["y"]')
    (found,) = problems(tmp_path, text + rule('["a"]', 'keywords = ["x", "y"]'))
    assert UNREACHABLE in found


def test_more_rules_and_keywords_than_can_be_checked_soon_are_errors(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, AGENTS + rule('["a"]') * 201)
    assert found == "portico.toml:9: routing.rules: has more than 200 rules; merge some of them"
    words = str([f"word{number}" for number in range(101)])
    (found,) = problems(tmp_path, AGENTS + rule('["a"]', f"keywords = {words}"))
    assert found == (
        "portico.toml:12: routing.rules[0].keywords: has more than 100 keywords; "
        "make several rules of it"
    )
