"""Notes in a SQLite database, which is opened when the server starts and closed when it stops.

Serve it to an MCP client with:

    portico run examples/notes_database.py

The notes are kept in `notes.db`, or in the file that the variable NOTES_DATABASE names.
"""

import json
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import msgspec

from portico import BlockingContext, Context, RegistrationError, Server, ToolError


@dataclass
class Note:
    id: int
    title: str
    text: str
    written: str


class Notes:
    """The notes of one database. Handlers run in threads, so one of them at a time uses it."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute(
            "create table if not exists notes (id integer primary key, title text not null,"
            " text not null, written text not null default current_timestamp)"
        )

    def add(self, title: str, text: str) -> Note:
        added = self._rows(
            "insert into notes (title, text) values (?, ?) returning id, title, text, written",
            title,
            text,
        )
        return added[0]

    def search(self, words: str, limit: int) -> list[Note]:
        """Return the newest notes that contain all the words."""
        return self._rows(
            "select * from notes where not exists (select 1 from json_each(?)"
            " where instr(lower(title || ' ' || text), value) = 0) order by id desc limit ?",
            json.dumps(words.lower().split()),
            limit,
        )

    def get(self, id: int) -> Note:
        found = self._rows("select * from notes where id = ?", id)
        if not found:
            raise ToolError(f"there is no note {id}; search_notes lists them")
        return found[0]

    def delete(self, id: int) -> None:
        self._rows("delete from notes where id = ?", id)

    def titles(self) -> list[str]:
        return [note.title for note in self._rows("select * from notes order by id desc")]

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _rows(self, query: str, *values: str | int) -> list[Note]:
        with self._lock, self._database:  # the latter commits, or rolls back
            return [Note(*row) for row in self._database.execute(query, values).fetchall()]


@asynccontextmanager
async def open_notes(server: Server) -> AsyncGenerator[Notes, None]:
    """Open the database before the first request, and close it after the last one."""
    path = os.environ.get("NOTES_DATABASE", "notes.db")
    try:
        notes = Notes(path)
    except sqlite3.Error as error:
        raise RegistrationError(f"cannot open {path}: {error}; set NOTES_DATABASE") from error
    try:
        yield notes
    finally:
        notes.close()


server = Server(
    "notes",
    "1.0.0",
    instructions="Notes of the user, kept between conversations.",
    lifespan=open_notes,
)


@server.tool
def add_note(title: str, text: str, *, context: BlockingContext) -> Note:
    """Write a note down.

    Args:
        title: A few words to find it by.
        text: The note itself.
    """
    note: Note = context.lifespan.add(title, text)
    server.resource_updated("notes://titles")
    return note


@server.tool(annotations={"readOnlyHint": True})
def search_notes(
    words: str = "",
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10,
    *,
    context: BlockingContext,
) -> list[Note]:
    """Find notes that contain all the words, the newest first.

    Args:
        words: Words to look for; none finds all notes.
        limit: How many notes to return at most.
    """
    found: list[Note] = context.lifespan.search(words, limit)
    return found


@server.tool(annotations={"destructiveHint": True})
async def delete_note(id: int, *, context: Context) -> str:
    """Delete a note, if the user agrees."""
    note: Note = context.lifespan.get(id)
    answer = await context.elicit(f"Delete the note {note.title!r}?", {"type": "object"})
    if not answer.accepted:
        return f"Kept the note {note.title!r}."
    context.lifespan.delete(id)
    server.resource_updated("notes://titles")
    return f"Deleted the note {note.title!r}."


@server.resource("notes://titles", mime_type="application/json")
def titles(context: BlockingContext) -> list[str]:
    """The titles of all notes, the newest first."""
    found: list[str] = context.lifespan.titles()
    return found


@server.resource("notes://note/{id}", name="note", mime_type="text/markdown")
def read_note(id: int, *, context: BlockingContext) -> str:
    """One note."""
    note: Note = context.lifespan.get(id)
    return f"# {note.title}\n\n{note.text}\n"


@server.prompt
def summarize(words: str = "", *, context: BlockingContext) -> str:
    """Summarize the notes about something."""
    found = context.lifespan.search(words, 100)
    return "Summarize these notes:\n\n" + "\n\n".join(f"{one.title}: {one.text}" for one in found)


if __name__ == "__main__":
    server.run()
