"""Runs a command of Portico in a program with links: `linked.py LINKS COMMAND...`.

LINKS is `noop`, a link that passes everything on, or `hiding`, which hides all that is not called
open. `approves-late` gets every answer after the time for it. The others expect servers with the
tools `echo` and `get-sum`, such as server-everything.
"""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import portico
from examples.approve import link as approves
from examples.redact import links as redacts
from portico import Answer, Context, Handler, Link, McpError, Offer, Only, Request, Response
from portico.library.chain import link_rounds


def noop(next: Handler) -> Handler:
    """Pass everything on."""

    def handle(request: Request, context: Context) -> Answer:
        return next(request, context)

    return handle


def _is_sum(request: Request) -> bool:
    return request.method == "tools/call" and request.name.endswith("get-sum")


class Hides:
    """Hides a tool by a view alone."""

    def __call__(self, next: Handler) -> Handler:
        return next

    def view(self, offer: Offer) -> Offer:
        return offer.keep(tools=lambda name: not name.endswith("get-sum"))


def refusing(tool: str) -> Link:
    """Refuse the calls of a tool."""

    def link(next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.method == "tools/call" and request.name.endswith(tool):
                raise McpError("not today", code=-31000)
            return next(request, context)

        return handle

    return link


class Adds(Hides):
    """Adds a tool that calls two others, one of which it hides."""

    name = "both"
    prefix = ""
    shadow: tuple[str, ...] = ()

    def __call__(self, next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            own = request.method == "tools/call" and request.name == self.name
            return self._both(next, request, context) if own else next(request, context)

        return handle

    async def _both(self, next: Handler, request: Request, context: Context) -> Response:
        echo = request.calling(f"{self.prefix}echo", {"message": "hello"})
        sum = request.calling(f"{self.prefix}get-sum", {"a": 2, "b": 3})
        answers = [await next(echo, context), await next(sum, context)]
        texts = [answer.decode()["result"]["content"][0]["text"] for answer in answers]
        result = {"content": [{"type": "text", "text": " & ".join(texts)}]}
        if request.version.modern:
            result["resultType"] = "complete"  # type: ignore[assignment]  # a plain dict
        return Response(id=request.id, result=json.dumps(result).encode())

    def view(self, offer: Offer) -> Offer:
        names = offer.listed("tools").keys
        self.prefix = next((n.removesuffix("echo") for n in names if n.endswith("echo")), "")
        tool = {"name": self.name, "description": "Both.", "inputSchema": {"type": "object"}}
        shadow = [name for name in self.shadow if name == self.name]
        return super().view(offer).adding(tools=[tool], shadow=shadow)


class Shadows(Adds):
    """Replaces a tool, on request."""

    def view(self, offer: Offer) -> Offer:
        names = offer.listed("tools").keys
        self.name = next((name for name in names if name.endswith("echo")), "both")
        self.shadow = (self.name,)
        return super().view(offer)


class Raises(Hides):
    """Has a view that raises."""

    def view(self, offer: Offer) -> Offer:
        raise RuntimeError("a secret of ours")


def silent(next: Handler) -> Handler:
    """Never answer the calls of a tool."""

    async def handle(request: Request, context: Context) -> Response:
        if _is_sum(request):
            await asyncio.Event().wait()
        return await next(request, context)

    return handle


def twice(next: Handler) -> Handler:
    """Make every call twice, and wait for each answer twice."""

    async def handle(request: Request, context: Context) -> Response:
        if request.method == "tools/call":
            await next(request.calling(request.name), context)
        answer = next(request, context)
        first = await answer
        return first if asyncio.iscoroutine(answer) else await answer

    return handle


def hurries(next: Handler) -> Handler:
    """Ask before each call, and do not wait long for the answer."""

    async def handle(request: Request, context: Context) -> Response:
        if request.method == "tools/call":
            try:
                async with asyncio.timeout(0.5):
                    await context.elicit("Now?", {})
            except TimeoutError:
                raise McpError("nobody answered in time", code=-31000) from None
        return await next(request, context)

    return handle


OPEN = ["*open*"]
LINKS: dict[str, Link | list[Link]] = {
    "noop": noop,
    "hiding": Only(tools=OPEN, resources=OPEN, prompts=OPEN),
    "hides": Hides(),
    "hides-lookup": Only(tools=["*"], without=["*lookup"]),
    "refuses": refusing("get-sum"),
    "refuses-lookup": refusing("lookup"),
    "redacts": redacts,
    "approves": approves,
    "approves-late": approves,
    "hurries": hurries,
    "adds": Adds(),
    "shadows": Shadows(),
    "raises": Raises(),
    "silent": silent,
    "twice": twice,
}
COMMANDS = {"run": portico.run, "wrap": portico.wrap, "serve": portico.serve}


def main(links: str, command: str, *words: str) -> int:
    """Run it; the exit code."""
    if links == "approves-late":
        vars(link_rounds)["ROUND_TTL_S"] = -1.0
    found = LINKS[links]
    return COMMANDS[command](*words, links=found if isinstance(found, list) else [found])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
