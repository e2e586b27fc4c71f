"""The policy of a real agent holds, whatever its user's own settings of that agent allow.

Qwen Code alone in `make test`, and every agent that has a preset in `make soak`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portico.core.config.agent_presets import PRESETS
from tests.agents.delegation.real_agents import EDITED, RAN, REAL_AGENTS, RealAgentGateway
from tests.agents.delegation.test_qwen import NOTES, call, delegate
from tests.support.model_server import calls, model_server, says
from tests.support.soak import IS_SOAK

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("qwen")]

AGENTS = list(PRESETS) if IS_SOAK else ["qwen"]
DENIED = {"deny": ["edit", "execute"], "default": "allow"}
DONE = says("Done.")


async def worked(folder: Path, id: str, **agent: Any) -> tuple[list[str], dict[str, int]]:
    """Let an agent run a command, then edit a file; the files, and the permissions by decision."""
    steps = REAL_AGENTS[id]
    script = {"command": [steps.run, DONE], "edit": [steps.edits_in(folder / "work"), DONE]}
    async with model_server(script) as model:
        gateway = RealAgentGateway(folder, model, id, **agent)
        async with gateway.window() as client:
            for prompt in ("run the command", "make the edit"):
                # An agent may end its turn after a rejection, so the end of it says little.
                await client.call_tool("delegate_task", {"task_type": "general", "prompt": prompt})
            (status,) = (await call(client, "agent_status"))["agents"]
        assert await gateway.ended(), gateway.processes()
    assert model.requests, model.unexpected
    found = sorted(path.name for path in gateway.work.iterdir())
    return found, status["totals"]["permissions"]


@pytest.mark.parametrize("id", AGENTS)
async def test_a_policy_that_denies_edits_and_commands_is_enforced(
    id: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    files, permissions = await worked(tmp_path, id, preset=id, permissions=DENIED)
    assert files == []
    # Codex requests no permission for a command that its own sandbox lets only read.
    assert permissions == {"denied": 1 if id == "codex" else 2}
    record_property("soak", f"{PRESETS[id].name} did nothing that its policy denies")


@pytest.mark.parametrize("id", AGENTS)
async def test_without_its_preset_an_agent_does_the_same_unasked(
    id: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    files, permissions = await worked(tmp_path, id, capabilities=["general"])
    assert (files, permissions) == ([EDITED, RAN], {})
    record_property("soak", f"{PRESETS[id].name} did it")


@pytest.mark.parametrize("id", AGENTS)
async def test_a_tool_that_the_config_lists_is_called_back_without_a_question(
    id: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    component = ("[components.notes]", 'path = "notes.py"')
    tool = f"{REAL_AGENTS[id].prefix}notes__remember"
    # Nobody is there to answer a question, and commands are denied: Codex calls it one.
    bound = {"preset": id, "tools": ["notes__remember"], "permissions": {"deny": ["execute"]}}
    async with model_server({"note": [calls(tool, text="42"), DONE]}) as model:
        gateway = RealAgentGateway(tmp_path, model, id, *component, **bound)
        async with gateway.window() as client:
            found = await delegate(client, "note the number 42")
            (status,) = (await call(client, "agent_status"))["agents"]
        assert await gateway.ended(), gateway.processes()
    assert found["result"] == "Done."
    assert "noted: 42" in str(model.requests[-1])
    assert status["totals"]["permissions"] == {"allowed": 1}
    record_property("soak", f"{PRESETS[id].name} called the tool")
