"""Permission requests of a real process, answered by the policy or by an owner."""

import json
from pathlib import Path
from typing import Any

import pytest

from portico.agents.delegation import AgentAnswer
from portico.agents.run_turn import run_turn
from portico.config.agents_schema import AgentPermissions
from tests.agents.rig import OPTIONS, FakePort, accept, launch, permission, prompt

REJECTED = {"outcome": {"outcome": "selected", "optionId": "no"}}
ALLOWED = {"outcome": {"outcome": "selected", "optionId": "once"}}
ALWAYS = {"outcome": {"outcome": "selected", "optionId": "always"}}
CANCELLED = {"outcome": {"outcome": "cancelled"}}


async def asked(
    folder: Path, port: FakePort, step: Any = None, **policy: Any
) -> tuple[Any, dict[str, int]]:
    """The outcome that the agent got, and the counted decisions."""
    agent = launch(step or permission(), permissions=AgentPermissions(**policy))
    outcome = await run_turn(agent, prompt(folder), port)
    return json.loads(outcome.text), dict(outcome.permissions)


async def test_the_policy_allows_once_though_always_is_offered_first(tmp_path: Path) -> None:
    port = FakePort()
    assert await asked(tmp_path, port, allow=("edit",)) == (ALLOWED, {"allowed": 1})
    assert port.questions == []
    assert port.events == ["permission allowed by the policy (allow): edit edit it"]
    assert "editing: edit it" in port.shown


async def test_the_policy_denies_with_a_reject(tmp_path: Path) -> None:
    port = FakePort(accept("once"))
    policy = {"allow": ("*",), "deny": ("edit",)}
    assert await asked(tmp_path, port, **policy) == (REJECTED, {"denied": 1})
    assert port.questions == []
    assert port.events == ["permission rejected by the policy (deny): edit edit it"]
    assert "editing: edit it" not in port.shown


async def test_the_kind_and_path_of_an_earlier_update_count(tmp_path: Path) -> None:
    call = {"toolCallId": "call-9", "title": "rm x", "kind": "execute"}
    update = {"sessionUpdate": "tool_call", **call, "locations": [{"path": "x"}]}
    params = {"toolCall": {"toolCallId": "call-9"}, "options": OPTIONS}
    request = {"ask": "session/request_permission", "params": params}
    port = FakePort()
    for deny in ("execute", "execute:x"):
        agent = launch(
            {"update": update},
            request,
            permissions=AgentPermissions(allow=("*",), deny=(deny,)),
        )
        outcome = await run_turn(agent, prompt(tmp_path), port)
        assert (json.loads(outcome.text), outcome.permissions) == (REJECTED, {"denied": 1})
    shown = f"permission rejected by the policy (deny): execute rm x ({tmp_path}/x)"
    assert port.events == [shown, shown]


async def test_a_denied_path_is_known_by_its_link_and_in_the_raw_input(tmp_path: Path) -> None:
    vault, folder = tmp_path / "vault", tmp_path / "folder"
    vault.mkdir()
    folder.mkdir()
    (folder / "secrets").symlink_to(vault)
    call = {"toolCallId": "1", "kind": "edit", "rawInput": {"notebook_path": f"{vault}/k"}}
    params = {"toolCall": call, "options": OPTIONS}
    step = {"ask": "session/request_permission", "params": params}
    policy = {"allow": ("edit",), "deny": ("edit:secrets/**",)}
    port = FakePort(accept("once"))
    assert await asked(folder, port, step, **policy) == (REJECTED, {"denied": 1})
    assert await asked(folder, port, permission(), **policy) == (ALLOWED, {"answered_allow": 1})


async def test_a_person_is_asked_and_answers(tmp_path: Path) -> None:
    port = FakePort(accept("once"))
    step = permission(path="src/a.py")
    assert await asked(tmp_path, port, step) == (ALLOWED, {"answered_allow": 1})
    (question,) = port.questions
    assert question.message == f"edit edit it ({tmp_path}/src/a.py): allow it?"
    assert question.kind == "permission"
    assert not question.for_model
    assert question.deadline_s == 300
    assert question.schema == {
        "type": "object",
        "properties": {
            "option": {
                "type": "string",
                "title": "Decision",
                "enum": ["once", "no", "never"],
                "enumNames": ["Allow", "Reject", "Always reject"],
            }
        },
        "required": ["option"],
    }


async def test_a_model_may_be_asked_where_the_policy_says_so(tmp_path: Path) -> None:
    port = FakePort(accept("no"))
    assert await asked(tmp_path, port, ask="model") == (REJECTED, {"answered_reject": 1})
    assert port.questions[0].for_model


@pytest.mark.parametrize(
    "answer",
    [
        AgentAnswer("decline"),
        AgentAnswer("cancel"),
        accept("always"),
        accept("made up"),
        AgentAnswer("accept", {}),
    ],
)
async def test_any_other_answer_is_a_reject(tmp_path: Path, answer: AgentAnswer) -> None:
    assert await asked(tmp_path, FakePort(answer)) == (REJECTED, {"answered_reject": 1})


async def test_always_may_be_chosen_only_if_configured(tmp_path: Path) -> None:
    port = FakePort(accept("always"))
    assert await asked(tmp_path, port, always=True) == (ALWAYS, {"answered_allow": 1})
    assert port.events[-1].startswith("permission allowed for good by the answer")


async def test_nobody_to_answer_is_a_reject(tmp_path: Path) -> None:
    assert await asked(tmp_path, FakePort()) == (REJECTED, {"unanswered": 1})


async def test_a_question_that_expires_is_a_reject_and_not_a_cancel(tmp_path: Path) -> None:
    port = FakePort(hangs=True)
    result = await asked(tmp_path, port, timeout_s=0.05)
    assert result == (REJECTED, {"expired": 1})
    assert port.withdrawn.is_set()


async def test_nothing_is_asked_if_only_always_could_allow_it(tmp_path: Path) -> None:
    only_always = [one for one in OPTIONS if one["kind"] != "allow_once"]
    port = FakePort(accept("always"))
    step = permission(options=only_always)
    assert await asked(tmp_path, port, step) == (REJECTED, {"denied": 1})
    assert await asked(tmp_path, port, step, allow=("edit",)) == (REJECTED, {"denied": 1})
    assert port.questions == []


@pytest.mark.parametrize("options", [[], "none", [{"optionId": "x", "name": "x", "kind": "new"}]])
async def test_a_request_without_a_reject_is_cancelled(tmp_path: Path, options: Any) -> None:
    step = permission(options=options)
    assert await asked(tmp_path, FakePort(accept("x")), step) == (CANCELLED, {"denied": 1})


async def test_a_request_that_is_taken_back_is_answered_with_its_error(tmp_path: Path) -> None:
    port = FakePort(hangs=True)
    step = permission()
    taken_back = {"take_back": step["ask"], "params": step["params"]}
    outcome = await run_turn(launch(taken_back), prompt(tmp_path), port)
    assert json.loads(outcome.text)["code"] == -32800


async def test_an_owner_that_fails_on_a_question_ends_the_turn(tmp_path: Path) -> None:
    class BrokenPort(FakePort):
        async def ask(self, question: Any) -> AgentAnswer | None:
            raise RuntimeError("the store is gone")

    with pytest.raises(RuntimeError, match="the store is gone"):
        await run_turn(
            launch(permission(), {"wait_for_cancel": True}), prompt(tmp_path), BrokenPort()
        )
