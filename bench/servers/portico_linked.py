"""A Portico command in its own program, behind LINKS links: LINKS COMMAND WORDS...

The links do nothing but pass on. The command `member` is `serve` with a server of this program.
"""

import sys

import portico
from portico.model.context import Context
from portico.model.message import Request
from portico.model.types import Answer, Handler

MEMBER = "bench"


def passing(next: Handler) -> Handler:
    """A link that does nothing."""

    def handle(request: Request, context: Context) -> Answer:
        return next(request, context)

    return handle


def main(count: str, command: str, *words: str) -> int:
    """Serve until the client leaves."""
    links = [passing] * int(count)
    if command == "member":
        from bench.servers.portico_server import server

        return portico.serve(*words, links=links, members={MEMBER: server})
    serve = {"run": portico.run, "wrap": portico.wrap, "serve": portico.serve}[command]
    return serve(*words, links=links)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
