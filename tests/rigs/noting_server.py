"""A server whose only tool leaves a trace: a line in a file for each call."""

from pathlib import Path

from portico import Server

server = Server("noting", "1.0.0")


@server.tool
def note(file: str, text: str) -> str:
    """Write a line into a file."""
    with Path(file).open("a", encoding="utf-8") as notes:
        notes.write(f"{text}\n")
    return f"noted {text}"


if __name__ == "__main__":
    server.run()
