"""Middleware that removes e-mail addresses and access tokens from results and errors.

Put it in front of any components, or of the whole gateway with `links` in portico.toml:

    portico run examples/redact.py "npx -y @modelcontextprotocol/server-everything"

    [gateway]
    links = ["examples/redact.py"]

It changes the texts and data of tools, resources and prompts. Images and other binary content, the
questions of tools, and their progress and log messages are passed on unchanged.
"""

import re
from typing import Any

import msgspec

from portico import Answer, Context, Handler, Request, Response, ToolRequest, after, hooks

# The patterns never try the same text twice (`++`): a long result must not hold up other calls.
PATTERNS = {
    "[e-mail]": re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"),
    "[token]": re.compile(
        r"\b(?:sk|gh[oprsu]|github_pat|glpat|xox[abprs])[-_][\w-]{16,}|\bBearer\s+[\w.~+/-]{16,}=*"
    ),
}
FIELDS = ("content", "structuredContent", "contents", "messages")


def clean_result(call: ToolRequest | None, result: dict[str, Any]) -> dict[str, Any]:
    """Redact what people and models read of a result; its state belongs to the server."""
    return {key: redacted(one) if key in FIELDS else one for key, one in result.items()}


def clean_error(call: ToolRequest | None, error: dict[str, Any]) -> dict[str, Any]:
    """Redact the message and the data of an error."""
    return {key: redacted(one) for key, one in error.items()}


def redacted(value: Any) -> Any:
    """Return a JSON value with all its texts redacted."""
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, list):
        return [redacted(one) for one in value]
    if isinstance(value, dict):
        return {redacted(key): redacted(one) for key, one in value.items()}
    return value


def redacted_text(text: str) -> str:
    """Return a text without secrets. Many servers write JSON in it, with escapes of its own."""
    if text[:1] in ("{", "["):
        try:
            inner = msgspec.json.decode(text)
            clean = redacted(inner)
        except (msgspec.DecodeError, RecursionError):
            clean = inner = None
        if clean != inner:
            text = msgspec.json.encode(clean).decode()
    for word, pattern in PATTERNS.items():
        text = pattern.sub(word, text)
    return text


def others(next: Handler) -> Handler:
    """Redact resources and prompts, which do not pass hooks."""

    def handle(request: Request, context: Context) -> Answer:
        answer = next(request, context)
        is_read = request.method in ("resources/read", "prompts/get")
        return after(answer, redact) if is_read else answer

    return handle


def redact(response: Response) -> Response:
    """Return a response without secrets."""
    if response.error:
        error = clean_error(None, response.decode()["error"])
        return msgspec.structs.replace(response, error=msgspec.json.encode(error))
    result = clean_result(None, response.decode()["result"])
    return msgspec.structs.replace(response, result=msgspec.json.encode(result))


links = [hooks(on_result=clean_result, on_error=clean_error), others]
