"""Middleware that asks a person before any tool that is not marked as read-only.

    portico run examples/approve.py "npx -y @modelcontextprotocol/server-everything"
Meta-tools need none. An approval is as good as the client that asks (docs/develop/threat-model.md).
"""

import json

from portico import Answer, Context, Handler, McpError, Offer, Request, Response


class Approve:
    """Asks before each call that may change something."""

    def __init__(self) -> None:
        self._reads: dict[str, bool] = {}

    def view(self, offer: Offer) -> Offer:
        """Note which tools only read; hide nothing."""
        for tool in map(json.loads, offer.listed("tools").items):
            self._reads[tool["name"]] = bool((tool.get("annotations") or {}).get("readOnlyHint"))
        return offer

    def __call__(self, next: Handler) -> Handler:
        async def ask(request: Request, context: Context) -> Response:
            text = json.dumps(request.decode().get("arguments") or {})
            text = text if len(text) < 2000 else f"{text[:1500]} [...] {text[-400:]}"
            if not (await context.elicit(f"Call {request.name} with {text}?", {})).accepted:
                raise McpError(f"{request.name} was not called: a person did not approve it")
            return await next(request, context)

        def handle(request: Request, context: Context) -> Answer:
            is_call = request.method == "tools/call" and request.name != request.asked
            asks = is_call and not self._reads.get(request.name)
            return ask(request, context) if asks else next(request, context)

        return handle


link = Approve()
