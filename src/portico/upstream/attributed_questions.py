"""Questions of servers, as clients get them where one doorway leads to many servers.

A person who is asked something must see which server asks: the client only knows the gateway.
"""

from typing import Any

from msgspec import Raw

from portico.catalog.sanitize import sanitize_text
from portico.model.methods import ELICIT, SAMPLE
from portico.model.session import Session
from portico.protocol.codec import decoded, encode
from portico.protocol.eras import Members, members

SERVER_KEY = "portico/server"
"""In a question's `_meta`: the server that asks."""
_ALL_SERVERS = b'"allServers"'


def refused_question(method: str, server: str) -> str:
    """Why a server that may not ask gets no answer."""
    return f"{method} is refused: {server} may not ask clients (may_ask = false in the config)"


def for_session(session: Session | None, method: str, params: bytes, server: str) -> bytes:
    """The params of a question as this client gets them."""
    if session is None or not session.names_servers:
        return params
    return encode(named(method, members(params), server))


def named(method: str, params: Members, server: str) -> Members:
    """The params of a question, under the name of the server that asks."""
    if method not in (ELICIT, SAMPLE):
        return params
    shown = dict(params)
    if method == ELICIT:
        shown["message"] = Raw(encode(signed(_text(params, "message"), server)))
    else:
        prompt = _text(params, "systemPrompt") or "The MCP server of this name makes this request."
        shown["systemPrompt"] = Raw(encode(signed(prompt, server)))
        if bytes(params.get("includeContext", b"")) == _ALL_SERVERS:
            shown["includeContext"] = Raw(b'"thisServer"')
    meta: dict[str, Any] = dict(members(params.get("_meta", b"")))
    shown["_meta"] = Raw(encode({**meta, SERVER_KEY: server}))
    return shown


def signed(text: str, server: str) -> str:
    """A text that says on each line whose it is, so that no line can pass for another server's."""
    lines = [sanitize_text(line) for line in text.splitlines()] or [""]
    return "\n".join(f"[{server}] {line}".rstrip() for line in lines)


def named_result(result: bytes, server: str) -> bytes:
    """A modern result; where it asks something, under the name of the server that asks."""
    # A name of a field can also be written in escapes.
    if result.find(b'"inputRequests"') < 0 and result.find(b"\\u") < 0:
        return result
    fields = members(result)
    questions = members(fields.get("inputRequests", b""))
    if not questions:
        return result
    asked = {key: _named_question(bytes(raw), server) for key, raw in questions.items()}
    fields["inputRequests"] = Raw(encode(asked))
    return encode(fields)


def _named_question(raw: bytes, server: str) -> Members:
    question = members(raw)
    params = named(_text(question, "method"), members(question.get("params", b"")), server)
    return {**question, "params": Raw(encode(params))} if "params" in question else question


def named_error(error: bytes, server: str) -> bytes:
    """The error that says which pages a person must visit first, under the server's name."""
    fields = members(error)
    data = members(fields.get("data", b""))
    pages = decoded(data.get("elicitations", b"[]"), list[Raw])
    if pages is None:
        return error
    data["elicitations"] = Raw(encode([named(ELICIT, members(page), server) for page in pages]))
    fields["data"] = Raw(encode(data))
    return encode(fields)


def _text(fields: Members, key: str) -> str:
    return decoded(fields.get(key, b'""'), str) or ""
