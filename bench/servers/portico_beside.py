"""A second component: with nothing to list or call but a prompt."""

from portico import Server

server = Server("beside", version="1.0.0")


@server.prompt
def greet(name: str) -> str:
    """Ask for a greeting."""
    return f"Greet {name}."
