"""Runs a command of Portico in a program with links: `linked.py LINKS COMMAND...`.

LINKS is `noop`, a link that passes everything on, or `hiding`, which hides all that is not called
open.
"""

import sys

import portico
from portico import Answer, Context, Handler, Link, Only, Request


def noop(next: Handler) -> Handler:
    """Pass everything on."""

    def handle(request: Request, context: Context) -> Answer:
        return next(request, context)

    return handle


OPEN = ["*open*"]
LINKS: dict[str, Link] = {
    "noop": noop,
    "hiding": Only(tools=OPEN, resources=OPEN, prompts=OPEN),
}
COMMANDS = {"run": portico.run, "wrap": portico.wrap, "serve": portico.serve}


def main(links: str, command: str, *words: str) -> int:
    """Run it; the exit code."""
    return COMMANDS[command](*words, links=[LINKS[links]])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
