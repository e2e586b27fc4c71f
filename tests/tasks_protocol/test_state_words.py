"""Every state has one word, and every task its agent: at the terminal, in tools and in the docs."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import (
    CANCELLED,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    Lease,
    TaskRecord,
    TaskState,
)
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.serve.gateway import serve_command, written
from tests.support.shared import ROOT
from tests.tasks_protocol.follower import ABLE, FollowingPipes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-state-words")]

KIND = "delegate@elsewhere"
INPUT = b'{"task_type": "code", "prompt": "do it", "cwd": "/"}'
QUESTION = {"method": "elicitation/create", "params": {"message": "Sure?"}}
RESULT = {"result": {"content": [{"type": "text", "text": "no"}], "isError": True}}
WORDS = [str(state) for state in TaskState]
NO_AGENT = ("queued", "starting")


async def running(store: TaskStore) -> Lease:
    """The lease of a delegated task that an agent has."""
    task = await store.submit(LOCAL, KIND, INPUT, owner="tests", lease_s=600)
    assert task.lease is not None
    await store.begin(task.lease, note='{"agent_id": "quick"}')
    return task.lease


async def ended(store: TaskStore, state: TaskState, *, is_error: bool = False) -> TaskRecord:
    """A task in its last state."""
    payload = json.dumps(RESULT).encode() if is_error else None
    done = await store.finish(await running(store), state, payload, is_error=is_error)
    assert done is not None
    return done


async def one_of_each(store: TaskStore) -> dict[str, list[str]]:
    """By word, the ids of tasks in that state."""
    queued = await store.submit(LOCAL, KIND, INPUT)
    starting = await store.submit(LOCAL, KIND, INPUT, owner="tests", lease_s=600)
    asking = await running(store)
    await store.ask(asking, [json.dumps(QUESTION).encode()])
    failed = [await ended(store, FAILED), await ended(store, COMPLETED, is_error=True)]
    rest = {str(state): await ended(store, state) for state in (COMPLETED, CANCELLED, INTERRUPTED)}
    return {
        "queued": [queued.id],
        "starting": [starting.id],
        "running": [(await running(store)).task_id],
        "input_required": [asking.task_id],
        "failed": [task.id for task in failed],
        **{word: [task.id] for word, task in rest.items()},
    }


@asynccontextmanager
async def tasks(home: Path) -> AsyncIterator[dict[str, list[str]]]:
    """Tasks in every state, whose worker lives."""
    store = tasks_in_folder(str(home / "state"))
    try:
        yield await one_of_each(store)
    finally:
        await store.close()


def table() -> dict[str, tuple[str, str]]:
    """By word, how 2025-11-25 and 2026-07-28 call a state, as the docs have it."""
    text = (
        (ROOT / "docs" / "use" / "tasks.md")
        .read_text()
        .partition("## States\n")[2]
        .partition("## ")[0]
    )
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(\w+)`", text, re.MULTILINE)
    return {word: (legacy, modern) for word, legacy, modern in rows}


def printed(home: Path, *words: str) -> str:
    """The output of `portico tasks`."""
    done = subprocess.run(
        [sys.executable, "-m", "portico", "tasks", *words],
        env={**os.environ, "PORTICO_HOME": str(home), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def by_word(found: list[dict[str, Any]], id: str, word: str) -> dict[str, set[str]]:
    """By word, the ids of tasks."""
    words: dict[str, set[str]] = {}
    for task in found:
        words.setdefault(task[word], set()).add(task[id])
    return words


def test_the_docs_have_a_row_for_every_state() -> None:
    assert list(table()) == WORDS


async def test_the_terminal_uses_the_words_and_names_the_agent(tmp_path: Path) -> None:
    async with tasks(tmp_path) as made:
        every = {word: set(ids) for word, ids in made.items()}
        shown = json.loads(await asyncio.to_thread(printed, tmp_path, "list", "--json"))
        assert by_word(shown, "id", "state") == every
        assert {task["agent"] for task in shown if task["state"] not in NO_AGENT} == {"quick"}
        for word, ids in made.items():
            lines = await asyncio.to_thread(printed, tmp_path, "list", "--state", word)
            rows = re.findall(r"  ptk_\S+ +\d+ s +(\w+) +delegate +code +(\S+)", lines)
            agent = "-" if word in NO_AGENT else "quick"
            assert rows == [(word, agent)] * len(ids), lines
            one = await asyncio.to_thread(printed, tmp_path, "show", ids[0])
            assert re.search(rf"^  state +{word}\b", one, re.MULTILINE), one
            agent = "not chosen yet" if word in NO_AGENT else "quick"
            assert re.search(rf"^  agent +{agent}$", one, re.MULTILINE), one


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_tools_use_the_words_and_the_protocol_those_of_its_era(
    tmp_path: Path, era: str
) -> None:
    config = written(tmp_path / "portico.toml", {}, gateway={"sync_budget_s": 5})
    async with tasks(tmp_path) as made:
        served = serve_command(tmp_path, config, "--alone")
        checked = await asyncio.to_thread(check_tools, served, made, era)
        assert checked == [id for word in table() for id in made[word]]


def check_tools(words: list[str], made: dict[str, list[str]], era: str) -> list[str]:
    """Check every task that a client reads in the tools of a gateway, and in its protocol."""
    checked = []
    with FollowingPipes(Path(), words=words, modern=era == "modern") as client:
        client.able = {"extensions": ABLE["extensions"]}  # no person is asked
        if era == "legacy":
            client.hello(client.able)

        def called(tool: str, **arguments: Any) -> dict[str, Any]:
            found = client.fetch("tools/call", {"name": tool, "arguments": arguments})["result"]
            data = found.get("structuredContent") or found["_meta"]["portico/task"]
            return {**data, "text": found["content"][0]["text"] if found["content"] else ""}

        listed = called("list_tasks")
        assert by_word(listed["tasks"], "task_id", "status") == {
            word: set(ids) for word, ids in made.items()
        }
        for word, (legacy, modern) in table().items():
            for id in made[word]:
                told = called("task_status", task_id=id)
                assert told["status"] == word
                assert told.get("agent_id") == (None if word in NO_AGENT else "quick")
                line = next(one for one in listed["text"].splitlines() if one.startswith(id))
                assert f" {word} (" in line
                assert line.count(", agent quick") == (word not in NO_AGENT)
                status = client.task(id)["status"]
                is_result = id == made["failed"][1]
                expected = "completed" if is_result and client.modern else modern
                assert status == (expected if client.modern else legacy)
                checked.append(id)
    return checked
