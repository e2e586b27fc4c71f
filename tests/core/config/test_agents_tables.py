"""The agents of a config: their keys, presets and variables, and each mistake with its line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.agents.turns.delegation import launch_of
from portico.core.config.agent_presets import PRESETS
from portico.core.config.agents_schema import (
    AgentCallbacks,
    AgentEntry,
    AgentPermissions,
    AgentPool,
    AgentsConfig,
    AgentsDefaults,
    AgentTimeouts,
    RateLimit,
    Retention,
    RoutingRule,
)
from portico.core.config.agents_tables import read_agents
from portico.core.config.expand import Sources
from portico.core.config.read import read
from portico.core.config.values import readers
from portico.core.documents.problems import ConfigError, Report

WHOLE = """
[agents_defaults]
max_concurrent = 3
sync_budget_s = 20
strategy = "least-used"
roots = ["~/code", "work", "${ROOT}"]
keep_tasks = { days = 7, count = 50 }

[[agents]]
id = "coder"
name = "Coder"
description = "Writes code"
command = "~/bin/coder"
args = ["--acp", "--key=${KEY}"]
env = { API_KEY = "${KEY}" }
cwd = "work"
capabilities = ["code-generation", "testing"]
priority = 10
max_concurrent = 2
callbacks = { fs = "read-write", terminal = true }
pool = { min = 2, max_age_s = 60 }
timeouts = { start = 5, idle = 6, hard = 7 }
mode = "plan"
options = { model = "small", fast = true }
supervised = true
auth_method = "key"
login = "coder login"
worktree = true
tools = ["files__*"]
max_depth = 1

[agents.rate_limit]
requests_per_minute = 60
requests_per_day = 2000
tokens_per_day = 100
cost_per_day = 2

[agents.permissions]
allow = ["read", "edit:src/**"]
ask_about = ["edit:src/secret/*"]
deny = ["delete", "*:.git/**"]
default = "deny"
ask = "model"
timeout_s = 30
always = true

[[agents]]
id = "batch"
kind = "cli"
command = "batch"
capabilities = ["report"]
enabled = false
"""


def agents(folder: Path, text: str, **variables: str) -> AgentsConfig:
    path = folder / "portico.toml"
    path.write_text(text)
    found = read(path, environ=variables).agents
    assert found is not None
    return found


def problems(folder: Path, text: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        agents(folder, text, **variables)
    return [line.removeprefix(f"{folder}/") for line in caught.value.problems]


def agent(text: str) -> str:
    return f'[[agents]]\nid = "a"\ncommand = "a"\ncapabilities = ["t"]\n{text}\n'


def test_all_keys_of_agents_are_read(tmp_path: Path) -> None:
    found = agents(tmp_path, WHOLE, KEY="s3cret", ROOT="/srv")
    assert found.defaults == AgentsDefaults(
        max_concurrent=3,
        sync_budget_s=20.0,
        strategy="least-used",
        roots=(os.path.expanduser("~/code"), str(tmp_path / "work"), "/srv"),
        keep_tasks=Retention(days=7.0, count=50),
    )
    coder, batch = found.entries.values()
    assert coder == AgentEntry(
        id="coder",
        name="Coder",
        description="Writes code",
        command=os.path.expanduser("~/bin/coder"),
        args=("--acp", "--key=s3cret"),
        env={"API_KEY": "s3cret"},
        cwd=str(tmp_path / "work"),
        capabilities=("code-generation", "testing"),
        priority=10,
        rate_limit=RateLimit(
            requests_per_minute=60, requests_per_day=2000, tokens_per_day=100, cost_per_day=2.0
        ),
        max_concurrent=2,
        permissions=AgentPermissions(
            allow=("read", "edit:src/**"),
            ask_about=("edit:src/secret/*",),
            deny=("delete", "*:.git/**"),
            default="deny",
            ask="model",
            timeout_s=30.0,
            always=True,
        ),
        callbacks=AgentCallbacks(fs="read-write", terminal=True),
        pool=AgentPool(min=2, max=2, max_age_s=60.0),
        timeouts=AgentTimeouts(start=5.0, idle=6.0, hard=7.0),
        mode="plan",
        options={"model": "small", "fast": True},
        supervised=True,
        auth_method="key",
        login="coder login",
        worktree=True,
        tools=("files__*",),
        max_depth=1,
    )
    assert (batch.title, batch.is_supervised, batch.enabled) == ("batch", False, False)
    assert "s3cret" not in f"{coder!r} {found!r}"


def test_a_config_without_agents_has_none(tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text("[gateway]\n")
    assert read(tmp_path / "portico.toml").agents is None


def test_by_default_an_agent_asks_a_person_and_gets_nothing(tmp_path: Path) -> None:
    (plain,) = agents(tmp_path, agent("")).entries.values()
    assert (plain.permissions.default, plain.permissions.ask) == ("ask", "person")
    assert not plain.permissions.always
    assert (plain.callbacks.reads, plain.callbacks.writes, plain.callbacks.terminal) == (False,) * 3
    assert (plain.tools, plain.max_depth, plain.worktree) == ((), 0, False)
    assert plain.rate_limit == RateLimit()
    assert (plain.pool.min, plain.pool.max) == (0, 1)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_enough(name: str, tmp_path: Path) -> None:
    preset = PRESETS[name]
    (found,) = agents(tmp_path, f'[[agents]]\nid = "x"\npreset = "{name}"\n').entries.values()
    assert (found.command, found.args, found.env) == (preset.command, preset.args, preset.env)
    assert (found.title, found.capabilities) == (preset.name, preset.capabilities)
    assert found.known is preset
    assert found.login_command == preset.login
    assert found.callbacks == AgentCallbacks()


def test_the_keys_of_a_config_win_over_its_preset(tmp_path: Path) -> None:
    text = """
    [[agents]]
    id = "mine"
    preset = "qwen"
    command = "/opt/qwen"
    env = { NO_COLOR = "0", KEY = "k" }
    capabilities = ["t"]
    login = "qwen-login"
    """
    (found,) = agents(tmp_path, text).entries.values()
    assert (found.command, found.args) == ("/opt/qwen", PRESETS["qwen"].args)
    assert found.env == {**PRESETS["qwen"].env, "NO_COLOR": "0", "KEY": "k"}
    assert (found.name, found.capabilities) == ("Qwen Code", ("t",))
    assert found.login_command == "qwen-login"


def test_a_relative_command_starts_at_the_folder_of_the_config(tmp_path: Path) -> None:
    text = agent("").replace('command = "a"', 'command = "./bin/a"')
    assert agents(tmp_path, text).entries["a"].command == str(tmp_path / "bin" / "a")


def test_an_unset_variable_breaks_only_its_agent(tmp_path: Path) -> None:
    text = agent('args = ["${MISSING}"]') + agent("").replace('"a"', '"b"', 1)
    found = agents(tmp_path, text)
    broken, fine = found.entries.values()
    assert broken.problem == "agents[0].args[0]: MISSING is not set; " + (
        "set it, or write ${MISSING:-default}"
    )
    assert fine.problem == ""
    config = read(tmp_path / "portico.toml", environ={})
    assert config.unresolved == (f"{tmp_path}/portico.toml:5: {broken.problem}",)


def test_a_disabled_agent_needs_no_variables(tmp_path: Path) -> None:
    (found,) = agents(tmp_path, agent('enabled = false\nargs = ["${MISSING}"]')).entries.values()
    assert found.problem == ""


def test_an_agent_that_is_not_selected_is_read_without_its_variables(tmp_path: Path) -> None:
    path = tmp_path / "portico.toml"
    path.write_text(agent('args = ["${KEY}"]') + agent("").replace('"a"', '"b"', 1))
    found = read(path, environ={"KEY": "s3cret"}, only={"b"}).agents
    assert found is not None
    assert found.entries["a"].args == ("${KEY}",)
    assert found.entries["a"].problem == "its variables and secrets were not read"
    assert found.entries["b"].problem == ""


def test_an_unset_variable_in_a_root_leaves_out_that_root(tmp_path: Path) -> None:
    found = agents(tmp_path, '[agents_defaults]\nroots = ["${MISSING}", "/srv"]\n')
    assert found.defaults.roots == ("/srv",)
    config = read(tmp_path / "portico.toml", environ={})
    assert "portico.toml:2: agents_defaults.roots[0]: MISSING is not set" in config.unresolved[0]


def test_every_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    text = """[agents_defaults]
strategy = "priorty"
max_conurrent = 3

[[agents]]
comand = "x"

[[agents]]
id = "qwen"
command = "qwen"
capabilities = ["code", "", "code"]
permissions = { allow = ["edti", "edit:"], default = "yes" }
rate_limit = { requests_per_minute = 0, requests_per_hour = 3 }

[[agents]]
id = "qwen"
command = "q"

[[agents]]
id = "not valid"

[[agents]]
id = "bare"

[[agents]]
id = "old"
kind = "line"
preset = "claud"
command = "x"
capabilities = ["code"]
callbacks = { fs = "read" }
pool = { min = 3, max = 2 }

[[agents]]
id = "g"
preset = "gemini"
callbacks = { fs = "read-write" }
"""
    assert problems(tmp_path, text) == [
        "portico.toml:2: agents_defaults.strategy: priorty is not one of priority, round-robin, "
        "least-used; did you mean priority?",
        "portico.toml:3: agents_defaults.max_conurrent: unknown key; did you mean max_concurrent?",
        "portico.toml:5: agents[0]: has no id; add one",
        "portico.toml:6: agents[0].comand: unknown key; did you mean command?",
        "portico.toml:9: agents[1].id: qwen is the id of two agents; rename one of them",
        "portico.toml:11: agents[1].capabilities[1]: is empty; set a value or remove it",
        "portico.toml:11: agents[1].capabilities[2]: code is listed twice; remove one of them",
        "portico.toml:12: agents[1].permissions.allow[0]: edti is not a kind of tool; "
        "did you mean edit?",
        "portico.toml:12: agents[1].permissions.allow[1]: has no path after the colon; "
        "add one or remove the colon",
        "portico.toml:12: agents[1].permissions.default: yes is not one of allow, ask, deny; "
        "use one of them",
        "portico.toml:13: agents[1].rate_limit.requests_per_minute: must be at least 1",
        "portico.toml:13: agents[1].rate_limit.requests_per_hour: unknown key; "
        "did you mean requests_per_day?",
        "portico.toml:16: agents[2].id: qwen is the id of two agents; rename one of them",
        "portico.toml:20: agents[3].id: is not a valid id; write not-valid",
        "portico.toml:22: agents[4]: has no command; add one, or a preset: "
        "qwen, gemini, claude, codex, opencode, copilot",
        "portico.toml:22: agents[4]: has no capabilities; list the task types that it accepts",
        "portico.toml:28: agents[5].preset: claud is not one of qwen, gemini, claude, codex, "
        "opencode, copilot; did you mean claude?",
        "portico.toml:31: agents[5].callbacks: has no effect: an agent of kind line cannot be "
        'supervised; remove it, or use kind = "acp"',
        "portico.toml:32: agents[5].pool: has no effect: an agent of kind line cannot be "
        'supervised; remove it, or use kind = "acp"',
        "portico.toml:32: agents[5].pool.min: is more than max; lower it, or raise max",
        "portico.toml: and 1 more",
    ]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (
            "../x",
            "has `..` in its path, which never matches; write the path without it, from / or ~",
        ),
        (
            "a/../x",
            "has `..` in its path, which never matches; write the path without it, from / or ~",
        ),
        (
            "file:///x",
            "is for a URL, and rules are for paths; write a path, or only the kind of tool",
        ),
        (
            "${HOME}/x",
            "has a variable, and rules have none; write the path itself, or ~ for your home",
        ),
        ("a\\\\x", "has a backslash in its path; separate folders with /"),
        ("!x", "has a path that begins with !, which is not supported; use allow or deny instead"),
        (
            "*.{pem,key}",
            "has alternatives in braces, which are not supported; write one rule for each",
        ),
        (
            "~no-such-user/x",
            "'~no-such-user' is not the home folder of a user; write ~/ or the path itself",
        ),
    ],
)
@pytest.mark.parametrize("key", ["allow", "ask_about", "deny"])
def test_a_rule_that_never_matches_is_rejected(
    path: str, why: str, key: str, tmp_path: Path
) -> None:
    text = agent(f'[agents.permissions]\n{key} = ["edit", "read:{path}"]')
    assert problems(tmp_path, text) == [f"portico.toml:6: agents[0].permissions.{key}[1]: {why}"]


def test_a_rule_may_begin_at_the_root_or_in_the_home_folder(tmp_path: Path) -> None:
    rules = ("read:~/.ssh/**", "read:/etc/**", "edit:app/[id]", "*:a..b", "edit:{{name}}")
    text = agent(f"supervised = true\npermissions = {{ deny = {list(rules)} }}")
    assert agents(tmp_path, text).entries["a"].permissions.deny == rules


POLICY = 'permissions = { deny = ["edit", "execute"] }'
UNKNOWN = "an agent without a preset may not request permissions; use a preset"
IF_IT_DOES = "or add supervised = true if it does"


def of_preset(name: str, *lines: str) -> str:
    return "\n".join(["[[agents]]", 'id = "x"', f'preset = "{name}"', *lines, ""])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_tells_its_agent_to_ask(name: str, tmp_path: Path) -> None:
    found = agents(tmp_path, of_preset(name, POLICY)).entries["x"]
    assert found.mode == PRESETS[name].modes[0]
    assert (found.is_supervised, found.unsupervised_because) == (True, "")
    assert launch_of(found).mode == found.mode
    assert launch_of(found).env == PRESETS[name].env


@pytest.mark.parametrize(
    "lines",
    [
        'args = ["--acp", "--stdio", "--allow-all-tools"]',
        'env = { COPILOT_ALLOW_ALL = "true" }',
        'options = { allow_all = "on" }',
        'mode = "https://agentclientprotocol.com/protocol/session-modes#autopilot"',
    ],
)
def test_copilot_without_requests_has_no_policy(lines: str, tmp_path: Path) -> None:
    found = agents(tmp_path, of_preset("copilot", lines)).entries["x"]
    assert (found.is_supervised, "may not request all" in found.unsupervised_because) == (
        False,
        True,
    )


def test_opencode_is_told_to_ask_in_its_variables(tmp_path: Path) -> None:
    found = agents(tmp_path, of_preset("opencode", POLICY)).entries["x"]
    told = json.loads(found.env["OPENCODE_CONFIG_CONTENT"])
    of_modes = [told["agent"][mode] for mode in PRESETS["opencode"].modes]
    rules = [one["permission"] for one in (told, *of_modes)]
    for one in rules:
        assert [one[key] for key in ("*", "bash", "edit", "external_directory")] == ["ask"] * 4


def test_the_rules_of_claude_that_allow_do_not_apply_under_a_policy(tmp_path: Path) -> None:
    plain = agents(tmp_path, of_preset("claude")).entries["x"]
    bound = agents(tmp_path, of_preset("claude", POLICY)).entries["x"]
    assert launch_of(plain).session_meta == {}
    assert launch_of(bound).session_meta == PRESETS["claude"].session_meta


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (agent(POLICY), UNKNOWN),
        (agent('permissions = { allow = ["read"] }'), UNKNOWN),
        (agent('permissions = { ask_about = ["edit:src/**"], default = "allow" }'), UNKNOWN),
        (agent('permissions = { default = "deny" }'), UNKNOWN),
        (
            of_preset("codex", POLICY, 'mode = "agent-full-access"'),
            "in mode agent-full-access, Codex may not request all permissions; remove that setting",
        ),
        (
            of_preset("claude", POLICY, 'options = { mode = "acceptEdits" }'),
            "in mode acceptEdits, Claude Agent may not request all permissions; "
            "remove that setting",
        ),
        (
            of_preset("opencode", POLICY, 'env = { OPENCODE_CONFIG_CONTENT = "{}" }'),
            "with OPENCODE_CONFIG_CONTENT, OpenCode may not request all permissions; "
            "remove that setting",
        ),
        (
            of_preset("opencode", POLICY, """env = { OPENCODE_PERMISSION = '"allow"' }"""),
            "with OPENCODE_PERMISSION, OpenCode may not request all permissions; "
            "remove that setting",
        ),
        (
            of_preset("gemini", POLICY, 'args = ["--acp", "--allowed-tools=write_file"]'),
            "with --allowed-tools, Gemini CLI may not request all permissions; remove that setting",
        ),
    ],
)
def test_a_policy_is_rejected_for_an_agent_that_may_not_ask(
    text: str, why: str, tmp_path: Path
) -> None:
    (problem,) = problems(tmp_path, text)
    place, _, said = problem.partition(": cannot be enforced: ")
    assert place.endswith("agents[0].permissions")
    assert said == f"{why}, {IF_IT_DOES}"
    vouched = text.replace("[[agents]]\n", "[[agents]]\nsupervised = true\n")
    (found,) = agents(tmp_path, vouched).entries.values()
    assert found.is_supervised


@pytest.mark.parametrize(
    "text",
    [
        agent(""),
        agent('permissions = { default = "allow", allow = ["read"] }'),
        agent('permissions = { ask = "model", timeout_s = 9 }'),
        of_preset("codex", 'mode = "agent-full-access"'),
    ],
)
def test_an_agent_that_may_not_ask_is_unsupervised_and_needs_no_policy(
    text: str, tmp_path: Path
) -> None:
    (found,) = agents(tmp_path, text).entries.values()
    assert not found.is_supervised


def test_a_rule_about_reads_that_a_preset_does_not_ask_for_is_rejected(tmp_path: Path) -> None:
    text = of_preset("qwen", 'permissions = { deny = ["edit", "read"], ask_about = ["search:a"] }')
    why = "cannot be enforced: Qwen Code reads its folder without a request; "
    how = "remove it, and keep from that folder what it must not read"
    assert problems(tmp_path, text) == [
        f"portico.toml:4: agents[0].permissions.deny[1]: {why}{how}",
        f"portico.toml:4: agents[0].permissions.ask_about[0]: {why}{how}",
    ]
    outside = 'permissions = { deny = ["read:~/.ssh/**", "*:.git/**"], allow = ["read"] }'
    assert agents(tmp_path, of_preset("qwen", outside)).entries["x"].is_supervised
    served = 'callbacks = { fs = "read" }\npermissions = { deny = ["read:a"] }'
    assert agents(tmp_path, of_preset("qwen", served)).entries["x"].is_supervised


def test_a_preset_wins_over_arguments_that_set_another_mode(tmp_path: Path) -> None:
    text = of_preset("qwen", POLICY, 'args = ["--acp", "--yolo"]')
    found = agents(tmp_path, text).entries["x"]
    assert (found.mode, found.is_supervised) == ("default", True)


def test_an_agent_without_a_preset_has_no_login_of_its_own(tmp_path: Path) -> None:
    assert agents(tmp_path, agent("")).entries["a"].login_command == ""


def test_a_callback_that_its_preset_does_not_support_is_rejected(tmp_path: Path) -> None:
    text = '[[agents]]\nid = "g"\npreset = "gemini"\ncallbacks = { fs = "read-write" }\n'
    assert problems(tmp_path, text) == [
        "portico.toml:4: agents[0].callbacks.fs: read-write does not work: with it, this agent "
        'cannot write new files; use "write" or "off"'
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[agents.qwen]\ncommand = "x"\n',
            "1: agents: must be a list of tables, [[agents]], not a table",
        ),
        ("agents = [3]\n", "1: agents[0]: must be a table, not a number"),
        ("agents_defaults = true\n", "1: agents_defaults: must be a table, not true or false"),
        ("routing = []\n", "1: routing: must be a table, not a list"),
        ("[routing]\nrule = []\n", "2: routing.rule: unknown key; did you mean rules?"),
        (
            "[routing]\nrules = {}\n",
            "2: routing.rules: must be a list of tables, [[routing.rules]], not a table",
        ),
        (
            agent("options = { model = 3 }"),
            "5: agents[0].options.model: must be a string, not a number; put it in quotes",
        ),
        (
            agent('kind = "cli"\npreset = "qwen"'),
            "6: agents[0].preset: is for kind acp only; remove it or kind",
        ),
    ],
)
def test_a_table_of_another_shape_is_explained(text: str, expected: str, tmp_path: Path) -> None:
    assert problems(tmp_path, text) == [f"portico.toml:{expected}"]


_kinds = (AgentEntry, AgentsDefaults, RoutingRule, AgentPermissions, AgentPool, RateLimit)
_keys = st.sampled_from([key for kind in _kinds for key in readers(kind)])
_texts = st.sampled_from(["a", "", "qwen", "gemini", "cli", "read", "${X}", "edit:x"])
_values = st.recursive(
    st.booleans() | st.integers() | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=5),
    max_leaves=20,
)
_entries = _values | st.lists(st.dictionaries(_keys, _values, max_size=6), max_size=4)


@given(agents=_entries, defaults=_values, rules=_entries)
def test_any_values_are_read_or_explained(agents: Any, defaults: Any, rules: Any) -> None:
    report = Report()
    data = {"agents": agents, "agents_defaults": defaults, "routing": {"rules": rules}}
    found = read_agents(report, data, Sources({}, "/"), lambda _: None)
    if not report.problems:
        assert all(entry.command and entry.capabilities for entry in found.entries.values())
        assert all(id in found.entries for rule in found.rules for id in rule.preferred_agents)
