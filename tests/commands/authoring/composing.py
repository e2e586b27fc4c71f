"""Components of every plain kind, and the commands that compose and use them."""

import json
import shutil
import sys
from pathlib import Path

from tests.gateway.observed import portico

CALC = '''
from portico import Server
import helpers
import shapes.circle

server = Server("calc", version="1.2")


@server.tool
def add(a: int, b: int) -> int:
    """Add."""
    return helpers.plus(a, b)
'''
GUARD = """
def on_call(call, next):
    call.arguments["b"] = 40
    return next(call)
"""
RUN = f"{sys.executable} -m portico run"
WORDS = {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}
HANDLERS = "def hello(arguments, context):\n    return 'hello from the bundle'\n"
OTHER_SDK = """
from mcp.server import MCPServer
import words
server = MCPServer("other")

@server.tool()
def shout(text: str) -> str:
    return words.loud(text)

if __name__ == "__main__":
    server.run()
"""
LOUD = "def loud(text):\n    return text.upper()\n"


def fill(folder: Path) -> None:
    """Write components of every plain kind."""
    (folder / "calc.py").write_text(CALC)
    (folder / "helpers.py").write_text("def plus(a, b):\n    return a + b\n")
    (folder / "shapes").mkdir()
    (folder / "shapes/__init__.py").write_text("")
    (folder / "shapes/circle.py").write_text("SIDES = 0\n")
    (folder / "shapes/data.txt").write_text("round")
    (folder / "guard.py").write_text(GUARD)
    (folder / "words.json").write_text(json.dumps(WORDS))
    (folder / "functions.py").write_text(HANDLERS)
    (folder / "unused.py").write_text("raise SystemExit('never imported')\n")


def done(folder: Path, *words: str | Path, code: int = 0) -> str:
    """Run a command to its end; return what it printed."""
    ran = portico(folder.parent, *map(str, words))
    assert ran.returncode == code, ran.stderr + ran.stdout
    return ran.stdout + ran.stderr


def call(folder: Path, target: str | Path, tool: str, **arguments: object) -> str:
    """Call a tool of a bundle in a process of its own."""
    return done(folder, "call", str(target), tool, json.dumps(arguments)).strip()


def composed(folder: Path, *words: str | Path, name: str = "one.portico") -> Path:
    done(folder, "compose", *words, "-o", folder / name)
    return folder / name


def stranger(folder: Path) -> Path:
    """A machine that has approved nothing, and has none of the files but the bundles."""
    made = folder.parent / "elsewhere" / "work"
    made.mkdir(parents=True)
    for one in folder.glob("*.portico"):
        shutil.copy(one, made)
    for one in folder.iterdir():
        if one.suffix in (".py", ".json"):
            one.unlink()
    return made
