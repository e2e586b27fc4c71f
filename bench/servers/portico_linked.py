"""A Portico command in its own program, behind LINKS links: LINKS COMMAND WORDS...

The links do nothing but pass on; LINKS is their number, `async` for one that is `async def`, or
`approve` for the example of that name, with all tools marked as read-only.
The command `member` is `serve` with a server of this program.
"""

import sys

import portico
from examples.approve import Approve
from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Handler, Link

MEMBER = "bench"
ASYNC, APPROVE = "async", "approve"
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


class Trusting(Approve):
    """The example, as if no tool changed anything."""

    def view(self, offer: Offer) -> Offer:
        """Note that all tools only read."""
        self._reads = dict.fromkeys(offer.listed("tools").keys, True)
        return offer


def main(count: str, command: str, *words: str) -> int:
    """Serve until the client leaves."""
    links: list[Link] = [passing] * (int(count) if count.isdecimal() else 0)
    if count == ASYNC:
        links = [awaiting]
    elif count == APPROVE:
        links = [Trusting()]
    if command == "member":
        from bench.servers.portico_server import server

        return portico.serve(*words, links=links, members={MEMBER: server})
    serve = {"run": portico.run, "wrap": portico.wrap, "serve": portico.serve}[command]
    return serve(*words, links=links)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
