"""A Portico command in its own program, behind LINKS links: LINKS COMMAND WORDS...

The links do nothing but pass on; LINKS is their number, or `async` for one that is `async def`.
The command `member` is `serve` with a server of this program.
"""

import sys

import portico
from portico.model.context import Context
from portico.model.message import Request, Response
from portico.model.types import Answer, Handler

MEMBER = "bench"
ASYNC = "async"
"""In place of the number of links."""


def passing(next: Handler) -> Handler:
    """A link that does nothing."""

    def handle(request: Request, context: Context) -> Answer:
        return next(request, context)

    return handle


def awaiting(next: Handler) -> Handler:
    """The same as an `async def`."""

    async def handle(request: Request, context: Context) -> Response:
        return await next(request, context)

    return handle


def main(count: str, command: str, *words: str) -> int:
    """Serve until the client leaves."""
    links = [awaiting] if count == ASYNC else [passing] * int(count)
    if command == "member":
        from bench.servers.portico_server import server

        return portico.serve(*words, links=links, members={MEMBER: server})
    serve = {"run": portico.run, "wrap": portico.wrap, "serve": portico.serve}[command]
    return serve(*words, links=links)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
