"""What a delegation is given: its prompt, its context, its folder, its timeout; and bad input."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portico.agents.delegation.delegate_definitions import MAX_PROMPT
from tests.agents.delegation.delegations import Crew, acp, data, delegate, over_http, refusal, words
from tests.serve.gateway import Gateway
from tests.support.running import FEATURES

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Crew:
    folder = tmp_path_factory.mktemp("input")
    agents = {
        "echo": acp(script={"prompt": [], "echo_prompt": True}),
        "embedding": acp(
            script={
                "prompt": [],
                "echo_prompt": True,
                "capabilities": {"promptCapabilities": {"embeddedContext": True}},
            }
        ),
        "cwd": acp({"cwd": True}),
        "slow": acp({"wait_for_cancel": True}),
        "flood": acp({"flood": 100, "text": "x", "times": MIB}),
        "crash": acp({"say": "half "}, {"crash": True}),
    }
    features = {"path": str(FEATURES), "in_process": True}
    made = Crew(folder, agents, gateway={"expose": "all"}, components__features=features)
    outside = folder / "outside"
    outside.mkdir()
    (made.work / "inner").mkdir()
    (made.work / "inner" / "file").touch()
    (made.work / "link").symlink_to(outside)
    return made


@pytest.fixture(scope="module")
def gateway(crew: Crew) -> Iterator[Gateway]:
    with Gateway(crew.home, crew.config) as running:
        yield running


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ("some text", "some text"),
        ({"key": ["value", 1]}, '{"key":["value",1]}'),
        ([1, 2], "[1,2]"),
    ],
)
async def test_text_and_json_come_before_the_prompt(
    gateway: Gateway, context: Any, expected: str
) -> None:
    async with over_http(gateway.port) as client:
        result = await delegate(client, "echo", prompt="the task", context=context)
    first, second = json.loads(words(result))
    assert first == {"type": "text", "text": expected}
    assert second == {"type": "text", "text": "the task"}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_linked_resources_are_read_through_portico(gateway: Gateway, era: str) -> None:
    link = {"type": "resource_link", "uri": "note://one", "name": "one"}
    async with over_http(gateway.port, era) as client:
        (note,) = (await client.read_resource("note://one")).contents
        embedded = await delegate(client, "embedding", context=[link])
        plain = await delegate(client, "echo", context=link)
        mixed = await delegate(client, "embedding", context=["read this:", link, {"a": 1}])
        unknown = {"type": "resource_link", "uri": "note://none", "name": "none"}
        why = refusal(await delegate(client, "echo", context=[unknown]))
    text = getattr(note, "text", "")
    assert text
    block, _ = json.loads(words(embedded))
    assert (block["type"], block["resource"]["text"]) == ("resource", text)
    assert text in json.loads(words(plain))[0]["text"]
    before, linked, after, _ = json.loads(words(mixed))
    assert (before["text"], linked, after["text"]) == ("read this:", block, '{"a":1}')
    assert why.startswith("context: cannot read 'note://none'")


async def test_a_task_works_in_its_folder(gateway: Gateway, crew: Crew) -> None:
    async with over_http(gateway.port) as client:
        assert words(await delegate(client, "cwd")) == str(crew.work)
        inner = str(crew.work / "inner")
        assert words(await delegate(client, "cwd", cwd=inner)) == inner
        round_about = str(crew.work / "inner" / ".." / "inner")
        assert words(await delegate(client, "cwd", cwd=round_about)) == inner


@pytest.mark.parametrize(
    ("cwd", "why"),
    [
        ("/", "cwd: / is not inside the allowed folders"),
        ("{work}/..", "is not inside the allowed folders"),
        ("{work}/link", "is not inside the allowed folders"),
        ("{work}2", "is not inside the allowed folders"),
        ("{work}/none", "is not a folder"),
        ("{work}/inner/file", "is not a folder"),
        ("inner", "cwd: 'inner' is relative, and your folder is not known; give an absolute path"),
    ],
)
async def test_another_folder_is_refused(gateway: Gateway, crew: Crew, cwd: str, why: str) -> None:
    async with over_http(gateway.port) as client:
        given = cwd.replace("{work}", str(crew.work))
        assert why in refusal(await delegate(client, "cwd", cwd=given))


async def test_a_relative_folder_is_that_of_the_window(crew: Crew) -> None:
    async with crew.window(verb="serve --alone") as client:
        assert words(await delegate(client, "cwd", cwd="inner")) == str(crew.work / "inner")
        assert "not inside" in refusal(await delegate(client, "cwd", cwd="link"))


async def test_a_task_ends_at_its_timeout(gateway: Gateway) -> None:
    async with over_http(gateway.port) as client:
        result = await delegate(client, "slow", timeout_s=0.5)
    assert "slow was stopped: it ran for more than 0.5 s" in refusal(result)
    found = result.structured_content
    assert found is not None
    assert (found["status"], found["stop_reason"]) == ("failed", "hard_timeout")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"prompt": "  "}, "delegate_task: `prompt` is empty; describe the whole task"),
        ({"prompt": "x" * (MAX_PROMPT + 1)}, "the limit is 1000000: put the rest into files"),
        ({"context": "x" * MAX_PROMPT}, "the limit is 1000000: put the rest into files"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": "soon"}, "timeout_s"),
        ({"prompt": 5}, "prompt"),
        ({"task_type": None}, "task_type"),
        ({"command": "rm"}, "command"),
        ({"permissions": "allow"}, "permissions"),
    ],
)
async def test_bad_input_is_explained_and_starts_nothing(
    gateway: Gateway, crew: Crew, given: dict[str, Any], why: str
) -> None:
    async with over_http(gateway.port) as client:
        before = await crew.tasks()
        assert why in refusal(await delegate(client, "echo", **given))
        assert await crew.tasks() == before


async def test_a_result_of_100_mb_is_cut_and_little_memory_is_used(gateway: Gateway) -> None:
    async with over_http(gateway.port) as client:
        found = data(await delegate(client, "flood"))
    assert found["status"] == "completed"
    assert "characters were cut here" in found["result"]
    assert len(found["result"]) < 2 * MIB
    assert gateway.peak() < 400 * MIB


async def test_an_agent_that_dies_in_its_turn_is_a_failure_with_its_text_so_far(
    gateway: Gateway,
) -> None:
    async with over_http(gateway.port) as client:
        result = await delegate(client, "crash")
    assert refusal(result).startswith("half ")
    found = result.structured_content
    assert found is not None
    assert (found["agent_id"], found["status"], found["stop_reason"]) == (
        "crash",
        "failed",
        "failed",
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"task_id": "ptk_none"}, "there is no task 'ptk_none'; list_tasks shows"),
        ({"task_id": 5}, "task_id"),
        ({"answer": "yes"}, "task_id"),
        ({"wait_s": 5000}, "wait_s"),
    ],
)
async def test_a_status_of_nothing_is_an_error(
    gateway: Gateway, given: dict[str, Any], why: str
) -> None:
    async with over_http(gateway.port) as client:
        assert why in refusal(await client.call_tool("agent_status", given))


def test_nothing_of_the_agents_was_logged_as_an_own_failure(
    gateway: Gateway, tmp_path: Path
) -> None:
    assert "Traceback" not in gateway.stderr()
