"""The policy as a pure function: nothing that is denied is ever allowed."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.agents.turns.call_paths import CallPath, NamedPaths
from portico.agents.turns.permissions import (
    REJECTING,
    KnownCall,
    PermissionOption,
    ToolCall,
    allowing,
    decide,
    matches,
    options_in,
    pick,
    resolved,
    tool_call,
)
from portico.core.config.agent_values import TOOL_KINDS
from portico.core.config.agents_schema import AgentPermissions

FOLDER = "/folder"
KINDS = st.sampled_from([*TOOL_KINDS, "brand_new"])
NAMES = st.sampled_from(["a", "b.py", ".env", "src", "Secret", "..", "x y"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
ABSOLUTE = st.one_of(PATHS.map(lambda path: f"{FOLDER}/{path}"), PATHS.map(lambda path: f"/{path}"))
PATTERNS = st.one_of(
    PATHS, ABSOLUTE, st.sampled_from(["**", "*", "**/*.py", "src/**", ".env", "/**", "?"])
)
RULES = st.lists(
    st.one_of(
        st.sampled_from(["*", *TOOL_KINDS]),
        st.tuples(st.sampled_from(["*", *TOOL_KINDS]), PATTERNS).map(":".join),
    ),
    max_size=4,
).map(tuple)
POLICIES = st.builds(
    AgentPermissions,
    allow=RULES,
    ask_about=RULES,
    deny=RULES,
    default=st.sampled_from(["allow", "ask", "deny"]),
    always=st.booleans(),
)


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    paths = draw(st.lists(ABSOLUTE.map(os.path.normpath), max_size=3))
    reals = draw(st.lists(ABSOLUTE.map(os.path.normpath), min_size=3, max_size=3))
    pairs = tuple(CallPath(named, real) for named, real in zip(paths, reals, strict=False))
    return ToolCall(draw(KINDS), "title", pairs, draw(st.booleans()))


def touched(rules: tuple[str, ...], call: ToolCall) -> bool:
    """A naive reading of rules that apply to any part of a call."""
    for rule in rules:
        kind, _, pattern = rule.partition(":")
        if kind in ("*", call.kind) and (
            not pattern
            or any(
                matches(pattern, form, FOLDER)
                for path in call.paths
                for form in (path.named, path.real)
            )
        ):
            return True
    return False


@given(POLICIES, calls())
def test_nothing_denied_is_ever_allowed_or_asked(policy: AgentPermissions, call: ToolCall) -> None:
    if touched(policy.deny, call):
        assert decide(policy, call, FOLDER) == "deny"


@given(POLICIES, calls())
def test_nothing_is_allowed_that_must_be_asked_about(
    policy: AgentPermissions, call: ToolCall
) -> None:
    if touched(policy.ask_about, call):
        assert decide(policy, call, FOLDER) != "allow"


@given(POLICIES, calls())
def test_only_a_rule_or_the_default_allows(policy: AgentPermissions, call: ToolCall) -> None:
    kinds = {rule.partition(":")[0] for rule in policy.allow}
    if decide(policy, call, FOLDER) == "allow" and policy.default != "allow":
        assert "*" in kinds or call.kind in kinds


@given(POLICIES, calls(), RULES)
def test_another_denial_never_loosens_a_policy(
    policy: AgentPermissions, call: ToolCall, more: tuple[str, ...]
) -> None:
    order = ["deny", "ask", "allow"]
    stricter = AgentPermissions(
        allow=policy.allow,
        ask_about=policy.ask_about,
        deny=policy.deny + more,
        default=policy.default,
    )
    before, after = decide(policy, call, FOLDER), decide(stricter, call, FOLDER)
    assert order.index(after) <= order.index(before)


OPTIONS = st.lists(
    st.builds(
        PermissionOption,
        st.sampled_from(["a", "b", "once", "proceed_once"]),
        st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "new"]),
    ),
    max_size=5,
)


@given(POLICIES, OPTIONS)
def test_the_exact_kind_is_chosen_and_once_before_always(
    policy: AgentPermissions, options: list[PermissionOption]
) -> None:
    kinds = [option.kind for option in options]
    allowed, rejected = pick(options, allowing(policy)), pick(options, REJECTING)
    if "allow_once" in kinds:
        assert allowed is not None
        assert allowed.kind == "allow_once"
    elif policy.always and "allow_always" in kinds:
        assert allowed is not None
        assert allowed.kind == "allow_always"
    else:
        assert allowed is None
    assert rejected is None or rejected.kind in REJECTING


def test_the_plain_option_wins_over_one_that_switches_the_mode() -> None:
    switches = PermissionOption("proceed_and_switch", "allow_once")
    plain = PermissionOption("proceed_once", "allow_once")
    assert pick([switches, plain], ("allow_once",)) is plain
    assert pick([switches, plain], ("allow_once",), ["proceed_and_switch"]) is switches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("**", "/folder/a/b", True),
        ("**", "/folder", True),
        ("**", "/elsewhere", False),
        ("**", "/folders/a", False),
        ("src/**", "/folder/src/a/b.py", True),
        ("src/*", "/folder/src/a/b.py", False),
        ("src", "/folder/src/a/b.py", True),
        ("src", "/folder/srcs", False),
        (".env", "/folder/deep/.env", True),
        ("*.py", "/folder/deep/a.py", True),
        ("**/*.py", "/folder/a.py", True),
        ("/etc/**", "/etc/passwd", True),
        ("/etc", "/etc/passwd", True),
        ("../x", "/x", False),
        ("./src", "/folder/src/a", True),
        ("a+b", "/folder/a+b", True),
        ("?", "/folder/a", True),
        ("app/[id]", "/folder/app/[id]/page.tsx", True),
        ("/**/.env", "/elsewhere/a/.env", True),
    ],
)
def test_patterns_match_as_documented(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, path, FOLDER) is expected


def test_denials_ignore_upper_and_lower_case() -> None:
    policy = AgentPermissions(deny=("read:.env",), default="allow")
    shouted = CallPath("/folder/.ENV", "/folder/.ENV")
    assert decide(policy, ToolCall("read", "", (shouted,)), FOLDER) == "deny"


def test_an_allowed_path_does_not_allow_a_call_without_one() -> None:
    policy = AgentPermissions(allow=("edit:src/**",))
    assert decide(policy, ToolCall("edit", ""), FOLDER) == "ask"
    inside = CallPath("/folder/src/a", "/folder/src/a")
    outside = CallPath("/folder/src/b", "/etc/passwd")
    assert decide(policy, ToolCall("edit", "", (inside,)), FOLDER) == "allow"
    assert decide(policy, ToolCall("edit", "", (inside, outside)), FOLDER) == "ask"


def test_links_are_resolved_before_the_policy_decides(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "link").symlink_to("secrets")
    policy = AgentPermissions(deny=("read:secrets/**",), default="allow")
    for path in ("link/key", "a/../link/key", str(tmp_path / "link" / "key")):
        call = tool_call({"kind": "read", "locations": [{"path": path}]}, str(tmp_path))
        assert decide(policy, call, str(tmp_path)) == "deny"


def test_a_request_need_not_repeat_what_an_update_said(tmp_path: Path) -> None:
    folder = str(tmp_path)
    known = KnownCall("execute", "rm -rf", NamedPaths(("secrets/key",)))
    call = tool_call({"toolCallId": "1"}, folder, known)
    assert (call.kind, call.title) == ("execute", "rm -rf")
    assert decide(AgentPermissions(allow=("*",), deny=("execute",)), call, folder) == "deny"
    by_path = AgentPermissions(allow=("*",), deny=("*:secrets",))
    assert decide(by_path, call, folder) == "deny"


@pytest.mark.parametrize("policy", [{"deny": ("execute",)}, {"ask_about": ("execute",)}])
def test_a_request_cannot_claim_another_kind(tmp_path: Path, policy: dict[str, Any]) -> None:
    folder = str(tmp_path)
    strict = AgentPermissions(allow=("*",), **policy)
    for claimed, earlier in (("read", "execute"), ("execute", "read")):
        call = tool_call({"kind": claimed}, folder, KnownCall(earlier))
        assert decide(strict, call, folder) != "allow"


@pytest.mark.parametrize(
    ("claimed", "earlier"), [("edit", "other"), ("other", "edit"), ("", "edit")]
)
def test_an_unknown_kind_adds_nothing_to_a_known_one(
    tmp_path: Path, claimed: str, earlier: str
) -> None:
    call = tool_call({"kind": claimed}, str(tmp_path), KnownCall(earlier))
    assert decide(AgentPermissions(allow=("edit",)), call, str(tmp_path)) == "allow"


SECRETS = ("edit:secrets/**", "read:secrets/**", "move:secrets/**")


@pytest.mark.parametrize(
    "call",
    [
        {"kind": "edit", "rawInput": {"file_path": "secrets/k"}},
        {"kind": "edit", "rawInput": {"notebook_path": "secrets/k"}},
        {"kind": "edit", "rawInput": {"changes": {"secrets/k": {"type": "add"}}}},
        {"kind": "edit", "rawInput": {"input": {"edits": [{"target_file": "a/../secrets/k"}]}}},
        {"kind": "edit", "locations": [{"path": "file:///folder/secrets/k"}]},
        {"kind": "edit", "locations": [{"path": "file:///folder/%73ecrets/k#L1"}]},
        {"kind": "move", "rawInput": {"source": "a", "destination": "secrets/k"}},
        {"kind": "move", "rawInput": {"path": "secrets"}},
        {"kind": "read", "rawInput": {"paths": ["a", "secrets/k"]}},
    ],
)
def test_a_denied_path_is_recognised_in_every_form(call: dict[str, Any]) -> None:
    asks = AgentPermissions(allow=("*",), ask_about=SECRETS)
    denies = AgentPermissions(allow=("*",), deny=SECRETS)
    found = tool_call(call, FOLDER)
    assert decide(denies, found, FOLDER) == "deny"
    assert decide(asks, found, FOLDER) == "ask"
    harmless = tool_call({"kind": call["kind"], "rawInput": {"path": "src/a"}}, FOLDER)
    assert decide(denies, harmless, FOLDER) == "allow"


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("edit", {}),
        ("edit", {"unknown": "secrets/k"}),
        ("edit", "secrets/k"),
        ("read", {"paths": ["**/k"]}),
        ("delete", {"path": "."}),
        ("search", {"pattern": "x", "path": "/"}),
        ("execute", {"command": "cat secrets/k", "cwd": "src"}),
    ],
)
@pytest.mark.parametrize("key", ["deny", "ask_about"])
def test_a_call_that_may_concern_such_a_path_is_a_question(kind: str, raw: Any, key: str) -> None:
    call = tool_call({"kind": kind, "rawInput": raw}, FOLDER)
    for rest in ({"allow": ("*",)}, {"default": "allow"}):
        rules: dict[str, Any] = {**rest, key: ("*:secrets/**",)}
        assert decide(AgentPermissions(**rules), call, FOLDER) == "ask"
        others: dict[str, Any] = {**rest, key: ("think:secrets/**",)}
        assert decide(AgentPermissions(**others), call, FOLDER) == "allow"
    denied = AgentPermissions(default="deny", ask_about=("edit:secrets/**",))
    assert decide(denied, call, FOLDER) == "deny"


def test_a_call_with_too_many_paths_is_never_allowed() -> None:
    raw = {"paths": [f"src/{number}" for number in range(1000)]}
    call = tool_call({"kind": "read", "rawInput": raw}, FOLDER)
    for key in ("deny", "ask_about"):
        rules: dict[str, Any] = {key: ("read:secrets/**",)}
        policy = AgentPermissions(allow=("*",), **rules)
        assert decide(policy, call, FOLDER) != "allow"


def test_a_rule_may_be_for_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    policy = AgentPermissions(allow=("*",), deny=("read:~/.ssh/**",))
    for path in ("~/.ssh/key", f"{tmp_path}/.ssh/key", f"file://{tmp_path}/.ssh/key"):
        call = tool_call({"kind": "read", "rawInput": {"path": path}}, FOLDER)
        assert decide(policy, call, FOLDER) == "deny"
    call = tool_call({"kind": "read", "rawInput": {"path": "~/notes"}}, FOLDER)
    assert decide(policy, call, FOLDER) == "allow"


def test_a_denied_link_is_denied_by_its_target_too(tmp_path: Path) -> None:
    vault, folder = tmp_path / "vault", tmp_path / "folder"
    vault.mkdir()
    folder.mkdir()
    (folder / "secrets").symlink_to(vault)
    call = tool_call({"kind": "read", "locations": [{"path": f"{vault}/k"}]}, str(folder))
    for rule in ("read:secrets/**", f"read:{folder}/secrets/*"):
        policy = resolved(AgentPermissions(allow=("*",), deny=(rule,)), str(folder))
        assert decide(policy, call, str(folder)) == "deny"
    allowed = resolved(AgentPermissions(allow=("read:secrets/**",)), str(folder))
    assert decide(allowed, call, str(folder)) == "ask"


@pytest.mark.parametrize(
    "rule", ["read:secrets//k", "read:./secrets/./k", "read://folder/secrets/"]
)
def test_a_rule_is_normalised(rule: str) -> None:
    call = tool_call({"kind": "read", "rawInput": {"path": "secrets/k"}}, FOLDER)
    assert decide(AgentPermissions(deny=(rule,)), call, FOLDER) == "deny"


def test_options_that_cannot_be_chosen_are_left_out() -> None:
    given = [{"optionId": "a", "kind": "allow_once"}, {"kind": "allow_once"}, 3, {"optionId": "b"}]
    assert [option.id for option in options_in({"options": given})] == ["a"]
    assert options_in({}) == []


def test_options_of_one_id_are_none_at_all() -> None:
    allows = {"optionId": "a", "kind": "allow_once"}
    for other in ({"optionId": "a", "kind": "reject_once"}, {"optionId": "a", "kind": "new"}):
        assert options_in({"options": [allows, other]}) == []
