"""A model server on loopback that follows a script, through each interface that agents use.

A prompt is recognised by a word near its end: agents put reminders in front. Its steps are taken in
turn, as an agent calls the model again with the result of each tool; which step is next follows
from the messages alone, so an agent may repeat a call, or continue its history in another process.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.support.model_dialects import DIALECTS, Message, Step

_MAX_PROMPT = 200

Script = Mapping[str, Sequence[Step]]
"""The steps of each prompt, by the word in it."""


def says(*chunks: str) -> Step:
    """An answer of text, streamed in these chunks."""
    return Step(chunks)


def calls(tool: str, /, **arguments: Any) -> Step:
    """An answer that calls a tool."""
    return Step((), tool, arguments)


def stalls(*chunks: str) -> Step:
    """An answer that begins with these chunks, and never ends."""
    return Step(chunks, stalls=True)


class ModelServer:
    """A running server: its requests, and events to wait for."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.port = 0
        self.requests: list[Message] = []
        """The bodies of all requests, in the order of arrival."""
        self.unexpected: list[str] = []
        """Requests for which there is no script."""
        self.stalled = asyncio.Event()
        """Set once an answer without an end has begun."""
        self.hung_up = asyncio.Event()
        """Set once the agent has given up such an answer."""

    @property
    def url(self) -> str:
        """The base URL, as an agent's config names it."""
        return f"http://127.0.0.1:{self.port}/v1"

    def texts(self, number: int = -1) -> list[tuple[str, str]]:
        """The messages of a request, without those of the system: the role and the text of each."""
        messages = self.requests[number]["messages"]
        return [(one["role"], _text(one)) for one in messages if one["role"] != "system"]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on a connection."""
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.splitlines()
        fields = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in fields}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        dialect = next((one for one in DIALECTS if one.path in first.split("?")[0]), None)
        if not first.startswith("POST ") or dialect is None:
            self.unexpected.append(first)
            writer.write(_response("404 Not Found", "application/json", b"{}"))
            return
        request = json.loads(body)
        self.requests.append(request)
        messages = dialect.messages(request)
        step, id = self._step(messages, bool(request.get("tools"))), f"call-{len(messages)}"
        if not request.get("stream") and ":stream" not in first:
            whole = json.dumps(dialect.whole(step, id)).encode()
            writer.write(_response("200 OK", "application/json", whole))
            return
        writer.write(_response("200 OK", "text/event-stream"))
        for chunk in dialect.chunks(step, id):
            writer.write(_event(chunk))
            await writer.drain()
        if step.stalls:
            self.stalled.set()
            await reader.read()  # until the agent closes the connection
            self.hung_up.set()
            return
        writer.write(dialect.last)

    def _step(self, messages: list[Message], has_tools: bool) -> Step:
        """Return the step that is due: one for each answer since the prompt."""
        for place in reversed(range(len(messages))):
            if messages[place]["role"] != "user":
                continue
            text = _text(messages[place])[-_MAX_PROMPT:]
            for word, steps in self.script.items():
                if word in text:
                    taken: int = sum(one["role"] == "assistant" for one in messages[place:])
                    step = steps[min(taken, len(steps) - 1)]
                    return says("A title.") if step.tool and not has_tools else step
        self.unexpected.append(_text(messages[-1])[-500:])
        return says("I have no script for this.")


@asynccontextmanager
async def model_server(script: Script) -> AsyncIterator[ModelServer]:
    """A model server on a free port, for as long as the block runs."""
    model = ModelServer(script)
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    model.port = server.sockets[0].getsockname()[1]
    try:
        yield model
    finally:
        server.close()


def _text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content)


def _event(message: Message) -> bytes:
    name = f"event: {message['type']}\n" if "type" in message else ""
    return f"{name}data: {json.dumps(message)}\n\n".encode()


def _response(status: str, content_type: str, body: bytes = b"") -> bytes:
    """A response that ends with its connection."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n"
    return head.encode() + body
