"""The `portico` command, which adds a byte to a file at each commit of changes: FILE WORDS..."""

import os
import sqlite3
import sys

from portico.commands.cli.main import main
from portico.core.state import database_file


def _counting(connection: sqlite3.Connection, counted: int) -> sqlite3.Connection:
    changes = connection.total_changes

    def seen(statement: str) -> None:
        nonlocal changes
        if statement == "COMMIT" and connection.total_changes != changes:
            changes = connection.total_changes
            os.write(counted, b".")

    connection.set_trace_callback(seen)
    return connection


if __name__ == "__main__":
    file = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    connect = database_file.connect
    database_file.connect = lambda path: _counting(connect(path), file)
    sys.exit(main())
