"""The example with a SQLite database: in memory, and served to the official SDK's client."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from examples.notes_database import server
from portico import ToolResult
from portico.edge.client.memory_client import Changed
from tests.examples.served import EACH_WAY, served
from tests.support.running import WAIT_S
from tests.support.shared import ROOT

EXAMPLE = str(ROOT / "examples" / "notes_database.py")
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "notes.db"
    monkeypatch.setenv("NOTES_DATABASE", str(file))
    return file


def titles(result: ToolResult) -> list[str]:
    return [note["title"] for note in result.structured["result"]]


@ERAS
async def test_notes_are_kept_searched_and_read(
    database: Path, era: Literal["modern", "legacy"]
) -> None:
    async with server.test_client(era=era) as client:
        async with client.changes("notes://titles") as changes:
            await client.call_tool("add_note", {"title": "Milk", "text": "Buy 2 % milk"})
            assert await anext(changes) == Changed("resources", "notes://titles")
        await client.call_tool("add_note", {"title": "Bread", "text": "Buy rye bread"})
    async with server.test_client(era=era) as client:
        assert titles(await client.call_tool("search_notes")) == ["Bread", "Milk"]
        assert titles(await client.call_tool("search_notes", {"words": "buy milk"})) == ["Milk"]
        assert titles(await client.call_tool("search_notes", {"words": "%"})) == ["Milk"]
        (note,) = await client.read_resource("notes://note/1")
        assert note.body == "# Milk\n\nBuy 2 % milk\n"
        (all_titles,) = await client.read_resource("notes://titles")
        assert all_titles.body == '["Bread","Milk"]'
        prompt = await client.get_prompt("summarize", {"words": "rye"})
        assert prompt.text == "Summarize these notes:\n\nBread: Buy rye bread"


@ERAS
async def test_a_note_is_deleted_only_if_the_user_agrees(
    database: Path, era: Literal["modern", "legacy"]
) -> None:
    answers: list[dict[str, Any] | None] = [None, {}]
    async with server.test_client(era=era, elicit=lambda params: answers.pop(0)) as client:
        await client.call_tool("add_note", {"title": "Milk", "text": ""})
        kept = await client.call_tool("delete_note", {"id": 1})
        assert kept.text == "Kept the note 'Milk'."
        assert (await client.call_tool("delete_note", {"id": 1})).text == "Deleted the note 'Milk'."
        gone = await client.call_tool("delete_note", {"id": 1})
        assert gone.is_error
        assert gone.text == "there is no note 1; search_notes lists them"


@pytest.mark.parametrize("command", [("-m", "portico", "run", EXAMPLE), (EXAMPLE,)])
async def test_the_official_client_finds_its_notes_again(
    database: Path, command: Sequence[str]
) -> None:
    environment = {**os.environ, "NOTES_DATABASE": str(database)}
    started = StdioServerParameters(command=sys.executable, args=list(command), env=environment)
    for expected in (["Milk"], ["Milk", "Milk"]):
        async with stdio_client(started) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            await client.call_tool("add_note", {"title": "Milk", "text": "Buy milk"})
            found = await client.call_tool("search_notes", {"words": "milk"})
            assert found.structured_content is not None
            assert [note["title"] for note in found.structured_content["result"]] == expected
    with sqlite3.connect(database) as connection:
        assert connection.execute("select count(*) from notes").fetchone() == (2,)
    connection.close()


@pytest.mark.slow
@pytest.mark.xdist_group("examples")
@EACH_WAY
def test_the_notes_stand_beside_any_server(way: str, database: Path, tmp_path: Path) -> None:
    is_served = way.startswith("serve")
    where = {"env": {"NOTES_DATABASE": str(database)}} if is_served else {}
    prefix = "notes__" if is_served else ""
    notes = {"notes": {"path": EXAMPLE, **where}}
    with served(way, tmp_path, components=notes) as shop:
        for number, era in enumerate(("legacy", "modern"), 1):
            with shop.client(era) as client:
                client.call(f"{prefix}add_note", title="Milk", text="Buy milk")
                found = json.loads(client.result(client.start(f"{prefix}search_notes")))
                assert len(found["structuredContent"]["result"]) == number
                assert client.call(shop.name("echo"), message="hello") == "Echo: hello"


def test_a_database_that_cannot_be_opened_ends_the_command(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "notes.db"
    ran = subprocess.run(
        [sys.executable, "-m", "portico", "run", EXAMPLE],
        env={**os.environ, "NOTES_DATABASE": str(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ran.returncode == 1
    why = f"cannot open {path}: unable to open database file; set NOTES_DATABASE"
    assert ran.stderr.startswith(f"portico: cannot start notes: {why} (")
