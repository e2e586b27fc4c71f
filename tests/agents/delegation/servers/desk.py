"""A component with a tool for agents, one that is not for them, a resource and a prompt."""

from portico import Server

server = Server("desk")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
def secret() -> str:
    """Return what no agent may see."""
    return "the secret"


@server.resource("desk://paper")
def paper() -> str:
    """A resource."""
    return "the paper"


@server.prompt
def greet() -> str:
    """A prompt."""
    return "the greeting"
