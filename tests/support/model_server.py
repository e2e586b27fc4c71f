"""A model server on loopback that speaks OpenAI's chat completions, and follows a script.

A prompt is recognised by a word near its end: agents put reminders in front. Its steps are taken in
turn, as an agent calls the model again with the result of each tool; which step is next follows
from the messages alone, so an agent may repeat a call, or continue its history in another process.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

Message = dict[str, Any]
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
"""The usage that every answer reports."""
_MODEL = "scripted"
_MAX_PROMPT = 200


class Step(NamedTuple):
    """One answer of the model: text in chunks, then perhaps a tool call, or no end at all."""

    chunks: tuple[str, ...] = ()
    tool: str = ""
    arguments: Mapping[str, Any] = {}
    stalls: bool = False


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
        if not first.startswith("POST /v1/chat/completions "):
            self.unexpected.append(first)
            writer.write(_response("404 Not Found", "application/json", b"{}"))
            return
        request = json.loads(body)
        self.requests.append(request)
        step = self._step(request)
        if not request.get("stream"):
            whole = json.dumps(_whole(step, request)).encode()
            writer.write(_response("200 OK", "application/json", whole))
            return
        writer.write(_response("200 OK", "text/event-stream"))
        for chunk in _chunks(step, request):
            writer.write(_event(chunk))
            await writer.drain()
        if step.stalls:
            self.stalled.set()
            await reader.read()  # until the agent closes the connection
            self.hung_up.set()
            return
        writer.write(b"data: [DONE]\n\n")

    def _step(self, request: Message) -> Step:
        """Return the step that is due: one for each answer since the prompt."""
        messages: list[Message] = request["messages"]
        for place in reversed(range(len(messages))):
            if messages[place]["role"] != "user":
                continue
            text = _text(messages[place])[-_MAX_PROMPT:]
            for word, steps in self.script.items():
                if word in text:
                    taken: int = sum(one["role"] == "assistant" for one in messages[place:])
                    return steps[min(taken, len(steps) - 1)]
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


def _chunks(step: Step, request: Message) -> Iterator[Message]:
    """The chunks of a streamed answer, up to the one with its usage."""
    yield _chunk({"role": "assistant", "content": ""})
    for text in step.chunks:
        yield _chunk({"content": text})
    if step.stalls:
        return
    if step.tool:
        (call,) = _tool_calls(step, request)
        given = call["function"]["arguments"]
        half = len(given) // 2
        function = {**call["function"], "arguments": given[:half]}
        yield _chunk({"tool_calls": [{**call, "index": 0, "function": function}]})
        yield _chunk({"tool_calls": [{"index": 0, "function": {"arguments": given[half:]}}]})
    yield _chunk({}, "tool_calls" if step.tool else "stop")
    yield {**_chunk({}), "choices": [], "usage": USAGE}


def _chunk(delta: Message, finish: str | None = None) -> Message:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    about = {"id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": _MODEL}
    return {**about, "choices": [choice]}


def _whole(step: Step, request: Message) -> Message:
    message: Message = {"role": "assistant", "content": "".join(step.chunks)}
    if step.tool:
        message["tool_calls"] = _tool_calls(step, request)
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if step.tool else "stop",
    }
    about = {"id": "chat-1", "object": "chat.completion", "created": 0, "model": _MODEL}
    return {**about, "choices": [choice], "usage": USAGE}


def _tool_calls(step: Step, request: Message) -> list[Message]:
    function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
    return [{"id": f"call-{len(request['messages'])}", "type": "function", "function": function}]


def _text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _event(message: Message) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def _response(status: str, content_type: str, body: bytes = b"") -> bytes:
    """A response that ends with its connection."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n"
    return head.encode() + body
