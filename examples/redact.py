"""Middleware that removes e-mail addresses and access tokens from results and errors.

Put it in front of any components, or of the whole gateway with `links` in portico.toml:

    portico run examples/redact.py "npx -y @modelcontextprotocol/server-everything"

    [gateway]
    links = ["examples/redact.py"]

It changes the texts and data of tools, resources and prompts. Images and other binary content, the
questions of tools, and their progress and log messages are passed on unchanged.
"""

import json
import re
from typing import Any

from msgspec.structs import replace

from portico import Answer, Context, Handler, Request, Response, after

# The patterns never try the same text twice (`++`): a long result must not hold up other calls.
PATTERNS = {
    "[e-mail]": re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"),
    "[token]": re.compile(
        r"\b(?:sk|gh[oprsu]|github_pat|glpat|xox[abprs])[-_][\w-]{16,}|\bBearer\s+[\w.~+/-]{16,}=*"
    ),
}
METHODS = ("tools/call", "resources/read", "prompts/get")
FIELDS = ("content", "structuredContent", "contents", "messages")


def link(next: Handler) -> Handler:
    """Redact each answer that has something to redact."""

    def handle(request: Request, context: Context) -> Answer:
        answer = next(request, context)
        return after(answer, redact) if request.method in METHODS else answer

    return handle


def redact(response: Response) -> Response:
    """Return the response without secrets; if it has none, the same one, byte for byte."""
    if response.error:
        error = json.loads(response.error)
        clean = redacted(error)
        return response if clean == error else replace(response, error=json.dumps(clean).encode())
    result = json.loads(response.result)
    clean = {key: redacted(one) if key in FIELDS else one for key, one in result.items()}
    return response if clean == result else replace(response, result=json.dumps(clean).encode())


def redacted(value: Any) -> Any:
    """Return a JSON value with all its texts redacted."""
    if isinstance(value, str):
        for word, pattern in PATTERNS.items():
            value = pattern.sub(word, value)
    elif isinstance(value, list):
        return [redacted(one) for one in value]
    elif isinstance(value, dict):
        return {redacted(key): redacted(one) for key, one in value.items()}
    return value
