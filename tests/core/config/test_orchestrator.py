"""The orchestrator's old tables become Portico's own, and the rest is rejected with its reason."""

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from portico.core.config.agents_tables import read_agents
from portico.core.config.expand import Sources
from portico.core.config.orchestrator import ImportedTables, from_orchestrator
from portico.core.documents.problems import Report

OLD = """
[server]
host = "127.0.0.1"
port = 3000
max_concurrent_tasks = 7

[main_agent]
name = "gemini"
type = "gemini-cli"

[[agents]]
id = "qwen-coder"
name = "Qwen"
type = "cli"
command = "qwencode"
args = ["--mode", "agent"]
capabilities = ["code-generation"]
priority = 10
rate_limit = { requests_per_minute = 30 }
version = "1"

[[agents]]
id = "jules agent"
type = "cli"
command = "qwen"
priority = 5000
policies = { bash = "ask_user" }
enabled = false

[[agents]]
id = "notebooklm"
type = "gemini-extension"
extension_name = "notebooklm"

[[agents]]
id = "pmat"
type = "internal"

[routing]
tier = "admin"

[[routing.rules]]
task_type = "refactoring"
keywords = ["refactor", "refactor", ""]
preferred_agents = ["qwen-coder", "notebooklm"]
priority = 999

[[routing.rules]]
task_type = "*"
preferred_agents = ["jules agent", "qwen-coder"]

[[routing.rules]]
task_type = "research"
preferred_agents = ["notebooklm"]

[[routing.rules]]
task_type = "docs"
preferred_agents = ["qwen-coder"]
enabled = false

[rate_limiting]
strategy = "least-used"
track_usage = true

[logging]
level = "info"
output = "/var/log/proxy.log"
"""


def problems(imported: ImportedTables) -> list[str]:
    """The problems that Portico has with the new tables."""
    report = Report()
    read_agents(report, imported.tables, Sources({}, "/"), lambda _: None)
    return list(map(str, report.problems))


def test_the_old_tables_become_the_new_ones() -> None:
    found = from_orchestrator(tomllib.loads(OLD))
    assert problems(found) == []
    assert found.tables["gateway"] == {"http": "127.0.0.1:3000", "log": "/var/log/proxy.log"}
    assert found.tables["agents_defaults"] == {"max_concurrent": 7, "strategy": "least-used"}
    assert found.tables["agents"] == [
        {
            "id": "qwen-coder",
            "name": "Qwen",
            "kind": "line",
            "command": "qwencode",
            "args": ["--mode", "agent"],
            "capabilities": ["code-generation", "refactoring"],
            "priority": 10,
            "rate_limit": {"requests_per_minute": 30, "requests_per_day": 2000},
        },
        {
            "id": "jules-agent",
            "kind": "line",
            "command": "qwen",
            "args": [],
            "capabilities": ["general"],
            "priority": 1000,
            "rate_limit": {"requests_per_minute": 60, "requests_per_day": 2000},
            "enabled": False,
        },
    ]
    assert [
        (one["task_type"], one["keywords"], one["preferred_agents"], one["priority"])
        for one in found.tables["routing"]["rules"]
    ] == [
        ("refactoring", ["refactor"], ["qwen-coder"], 999),
        ("general", [], ["jules-agent"], 0),
        ("code-generation", [], ["qwen-coder"], 0),
        ("refactoring", [], ["qwen-coder"], 0),
    ]


def test_parts_without_a_counterpart_are_rejected_with_the_reason() -> None:
    assert from_orchestrator(tomllib.loads(OLD)).rejected == (
        "main_agent: Portico has no main agent: the client that connects to it has that part",
        "agents[2]: notebooklm is not converted: a Gemini extension runs only inside Gemini CLI; "
        'use an agent with preset = "gemini"',
        "agents[3]: pmat is not converted: it was a part of the orchestrator, and has no command",
    )


def test_every_part_that_changed_has_a_note() -> None:
    assert set(from_orchestrator(tomllib.loads(OLD)).notes) == {
        "server: the orchestrator ignored its host and port, and used stdio; "
        "remove http to keep that",
        "logging.level: left out: Portico logs every call",
        "rate_limiting.track_usage: left out: Portico always keeps usage, by itself",
        "agents[0].version: unknown key, ignored",
        "agents[1]: is a plain command without supervision, as before; consider preset = 'qwen'",
        "agents[1].policies: left out: a plain command cannot be supervised; "
        'use kind = "acp" and permissions',
        "agents[1].priority: is now 1000, the highest",
        "agents[2].extension_name: unknown key, ignored",
        "agents: 'jules agent' now has the capability general",
        "agents: 'jules agent' is not a valid id, and is now jules-agent",
        "routing.tier: left out: rules are sorted by priority alone",
        "routing.rules[0]: qwen-coder now has the capability refactoring",
        "routing.rules[0].preferred_agents: notebooklm is left out: it was not converted",
        "routing.rules[2].preferred_agents: notebooklm is left out: it was not converted",
        "routing.rules[2]: left out: none of its agents was converted",
        "routing.rules[3]: left out: it is disabled",
    }


def test_a_rule_that_portico_would_reject_is_left_out() -> None:
    agent = '[[agents]]\nid = "a"\ncommand = "a"\ncapabilities = ["code"]\n'
    rule = '[[routing.rules]]\ntask_type = "code"\npreferred_agents = ["a"]\n'
    found = from_orchestrator(tomllib.loads(agent + rule * 2))
    assert len(found.tables["routing"]["rules"]) == 1
    assert found.notes == (
        "routing.rules[1]: left out: it is never reached: "
        "the rules before it try the same agents for every prompt",
    )


def test_wrong_values_are_rejected_with_their_place() -> None:
    found = from_orchestrator(
        {"agents": [{"id": 3, "command": "x"}, {"id": "b"}], "logging": {"output": 1}, "x": 1}
    )
    assert found.tables == {}
    assert found.rejected == (
        "logging.output: must be a string, not a number; put it in quotes",
        "agents[0].id: must be a string, not a number; put it in quotes",
        "agents[1]: b has no command",
    )
    assert found.notes == ("x: unknown key, ignored",)


def test_an_agent_without_capabilities_gets_a_general_one() -> None:
    found = from_orchestrator({"agents": [{"id": "a", "command": "a"}], "logging": {}})
    assert problems(found) == []
    assert [one["capabilities"] for one in found.tables["agents"]] == [["general"]]


_ids = st.sampled_from(["a", "b", "c d", "qwen"])
_types = st.sampled_from(["code", "docs", "*", ""])
_agents = st.fixed_dictionaries(
    {"id": _ids, "command": st.sampled_from(["x", "qwen"])},
    optional={
        "capabilities": st.lists(_types),
        "priority": st.integers(-1, 2000),
        "type": st.sampled_from(["cli", "internal", "gemini-extension", "other"]),
        "rate_limit": st.dictionaries(st.sampled_from(["requests_per_day", "x"]), st.integers()),
        "enabled": st.booleans(),
    },
)
_rules = st.fixed_dictionaries(
    {},
    optional={
        "task_type": _types,
        "keywords": st.lists(st.sampled_from(["fix", "a fix", ""])),
        "preferred_agents": st.lists(_ids),
        "priority": st.integers(-1, 2000),
        "enabled": st.booleans(),
    },
)


@given(
    agents=st.lists(_agents, max_size=4),
    rules=st.lists(_rules, max_size=5),
    server=st.dictionaries(st.sampled_from(["host", "port"]), st.integers() | st.text()),
)
def test_whatever_was_in_the_old_file_the_new_tables_are_valid(
    agents: list[Any], rules: list[Any], server: dict[str, Any]
) -> None:
    found = from_orchestrator({"agents": agents, "routing": {"rules": rules}, "server": server})
    assert problems(found) == []
