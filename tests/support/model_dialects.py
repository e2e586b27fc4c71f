"""The HTTP interfaces through which agents speak with a model, each as data of the same script.

A dialect finds the messages of a request, in the form of chat completions, and writes a step as the
chunks of a streamed answer.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

Message = dict[str, Any]
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
"""The usage that every answer reports."""
MODEL = "scripted"
_IN, _OUT = USAGE["prompt_tokens"], USAGE["completion_tokens"]


class Step(NamedTuple):
    """One answer of the model: text in chunks, then perhaps a tool call, or no end at all."""

    chunks: tuple[str, ...] = ()
    tool: str = ""
    arguments: Mapping[str, Any] = {}
    stalls: bool = False


class Dialect(Protocol):
    """One interface."""

    path: str
    """A part of the path of its requests."""
    last: bytes
    """Sent after the last chunk."""

    def messages(self, request: Message) -> list[Message]:
        """The messages of a request: the `role` of each, and its `content`."""
        ...

    def chunks(self, step: Step, id: str) -> Iterator[Message]:
        """The chunks of a streamed answer; those of one that stalls have no end."""
        ...

    def whole(self, step: Step, id: str) -> Message:
        """An answer that is not streamed."""
        ...


class Chat:
    """Chat completions, of OpenAI and many others."""

    path = "/chat/completions"
    last = b"data: [DONE]\n\n"

    def messages(self, request: Message) -> list[Message]:
        """They are as they should be."""
        found: list[Message] = request["messages"]
        return found

    def chunks(self, step: Step, id: str) -> Iterator[Message]:
        """The arguments of a tool come in two parts."""
        yield _chunk({"role": "assistant", "content": ""})
        for text in step.chunks:
            yield _chunk({"content": text})
        if step.stalls:
            return
        if step.tool:
            call = _tool_call(step, id)
            given = call["function"]["arguments"]
            half = len(given) // 2
            function = {**call["function"], "arguments": given[:half]}
            yield _chunk({"tool_calls": [{**call, "index": 0, "function": function}]})
            yield _chunk({"tool_calls": [{"index": 0, "function": {"arguments": given[half:]}}]})
        yield _chunk({}, "tool_calls" if step.tool else "stop")
        yield {**_chunk({}), "choices": [], "usage": USAGE}

    def whole(self, step: Step, id: str) -> Message:
        """One message."""
        message: Message = {"role": "assistant", "content": "".join(step.chunks)}
        if step.tool:
            message["tool_calls"] = [_tool_call(step, id)]
        finish = "tool_calls" if step.tool else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        about = {"id": "chat-1", "object": "chat.completion", "created": 0, "model": MODEL}
        return {**about, "choices": [choice], "usage": USAGE}


def _chunk(delta: Message, finish: str | None = None) -> Message:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    about = {"id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
    return {**about, "choices": [choice]}


def _tool_call(step: Step, id: str) -> Message:
    function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
    return {"id": id, "type": "function", "function": function}


class Responses:
    """The Responses interface of OpenAI, which Codex uses."""

    path = "/responses"
    last = b""

    def messages(self, request: Message) -> list[Message]:
        """A tool's call is the model's, and its output that of a tool."""
        return [_of_response(item) for item in request["input"]]

    def chunks(self, step: Step, id: str) -> Iterator[Message]:
        """Its items, whole."""
        yield {"type": "response.created", "response": {"id": id}}
        if step.stalls:
            return
        for item in _items(step, id):
            yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield {"type": "response.completed", "response": self.whole(step, id)}

    def whole(self, step: Step, id: str) -> Message:
        """One response."""
        usage = {"input_tokens": _IN, "output_tokens": _OUT, "total_tokens": _IN + _OUT}
        return {"id": id, "status": "completed", "output": _items(step, id), "usage": usage}


def _of_response(item: Message) -> Message:
    role = item.get("role") or ("tool" if item["type"].endswith("_output") else "assistant")
    return {"role": role, "content": item.get("content") or ""}


def _items(step: Step, id: str) -> list[Message]:
    if not step.tool:
        text = [{"type": "output_text", "text": "".join(step.chunks)}]
        return [{"type": "message", "role": "assistant", "id": id, "content": text}]
    if step.tool == "tool_search":  # of Codex and Copilot CLI, which search for deferred tools
        search = {"type": "tool_search_call", "call_id": id, "execution": "client"}
        return [{**search, "arguments": dict(step.arguments)}]
    call = {"type": "function_call", "call_id": id, "arguments": json.dumps(step.arguments)}
    server = re.match("mcp__[^_]+", step.tool)  # Codex has a namespace for the tools of each
    if server is None:
        return [{**call, "name": step.tool}]
    return [{**call, "name": step.tool[server.end() + 2 :], "namespace": server[0]}]


class Messages:
    """The Messages interface of Anthropic."""

    path = "/messages"
    last = b""

    def messages(self, request: Message) -> list[Message]:
        """A message that holds results of tools is not a prompt."""
        return [
            {**one, "role": "tool"} if "tool_result" in _types(one) else one
            for one in request["messages"]
        ]

    def chunks(self, step: Step, id: str) -> Iterator[Message]:
        """One block: the text or the call."""
        yield {"type": "message_start", "message": {**self.whole(step, id), "content": []}}
        if step.tool:
            block = {"type": "tool_use", "id": id, "name": step.tool, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}]
        else:
            block = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": text} for text in step.chunks]
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        if step.stalls:
            return
        yield {"type": "content_block_stop", "index": 0}
        stop = {"stop_reason": "tool_use" if step.tool else "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": _OUT}}
        yield {"type": "message_stop"}

    def whole(self, step: Step, id: str) -> Message:
        """One message."""
        block: Message = {"type": "text", "text": "".join(step.chunks)}
        if step.tool:
            given = dict(step.arguments)
            block = {"type": "tool_use", "id": id, "name": step.tool, "input": given}
        stop = {"stop_reason": "tool_use" if step.tool else "end_turn", "stop_sequence": None}
        usage = {"input_tokens": _IN, "output_tokens": _OUT}
        about = {"id": id, "type": "message", "role": "assistant", "model": MODEL}
        return {**about, "content": [block], **stop, "usage": usage}


def _types(message: Message) -> list[str]:
    content = message["content"]
    return [] if isinstance(content, str) else [part.get("type", "") for part in content]


class GenerateContent:
    """The interface of Gemini."""

    path = "enerateContent"
    last = b""

    def messages(self, request: Message) -> list[Message]:
        """The model's role has another name."""
        return [_of_content(one) for one in request["contents"]]

    def chunks(self, step: Step, id: str) -> Iterator[Message]:
        """The whole answer at once."""
        yield self.whole(step, id)

    def whole(self, step: Step, id: str) -> Message:
        """One candidate."""
        part: Message = {"text": "".join(step.chunks)}
        if step.tool:
            part = {"functionCall": {"id": id, "name": step.tool, "args": dict(step.arguments)}}
        content = {"role": "model", "parts": [part]}
        counts = {"promptTokenCount": _IN, "candidatesTokenCount": _OUT}
        usage = {**counts, "totalTokenCount": _IN + _OUT}
        candidate = {"index": 0, "content": content, "finishReason": "STOP"}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL}


def _of_content(content: Message) -> Message:
    parts: list[Message] = content["parts"]
    role = "assistant" if content.get("role") == "model" else "user"
    if any("functionResponse" in part for part in parts):
        role = "tool"
    return {"role": role, "content": parts}


DIALECTS: tuple[Dialect, ...] = (Chat(), Responses(), Messages(), GenerateContent())
"""All of them; the first whose path occurs in a request's is used."""
