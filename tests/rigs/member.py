"""`portico serve` in a program of its own, with a server of that program as a member."""

import sys

import portico
from portico import Context, Server

server = Server("notes", "3.1", title="Notes")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def walk(steps: int, context: Context) -> str:
    """Walk some steps, and tell of each."""
    for step in range(steps):
        await context.progress(step + 1, steps, f"step {step + 1}")
    return "there"


@server.tool
async def ask(context: Context) -> str:
    """Ask for a name."""
    answer = await context.elicit("Your name?", {"properties": {"name": {"type": "string"}}})
    return f"{answer.action} {answer.content['name']}"


@server.tool
async def learn(name: str) -> str:
    """Have one more tool from now on."""
    server.add_tool({"name": name, "inputSchema": {"type": "object"}}, lambda arguments: name)
    return "learned"


@server.tool
async def touch(uri: str) -> str:
    """Change a memo."""
    server.resource_updated(uri)
    return "touched"


@server.resource("memo://first")
def first() -> str:
    """The first memo."""
    return "the first"


@server.resource("memo://{name}/page")
def page(name: str) -> str:
    """A page of a memo."""
    return f"a page of {name}"


@server.prompt
def greet(name: str) -> str:
    """Greet someone."""
    return f"Hello, {name}"


@server.completion("greet", "name")
def names(value: str) -> list[str]:
    """The names that there are."""
    return [name for name in ("Ada", "Alan") if name.startswith(value)]


if __name__ == "__main__":
    raise SystemExit(portico.serve(*sys.argv[2:], members={"notes": server}))
