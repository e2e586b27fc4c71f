"""Questions of servers with the server's name added, for endpoints of several servers.

A person must see which server sends a question: the client only knows the gateway.
"""

from typing import Any
from unicodedata import category, normalize

from msgspec import Raw

from portico.core.catalog.sanitize import sanitize_text
from portico.core.model.methods import ELICIT, SAMPLE
from portico.core.model.session import Session
from portico.core.protocol.codec import decoded, encode, may_mention
from portico.core.protocol.eras import Members, members

SERVER_KEY = "portico/server"
"""In a question's `_meta`: the server that sends it."""
_LABELS = ("title", "description")
_ALL_SERVERS = "allServers"


def refused_question(method: str, server: str) -> str:
    """Return the error for a server whose questions are disabled."""
    return f"{method} is refused: {server} may not ask clients (may_ask = false in the config)"


def for_session(session: Session | None, method: str, params: bytes, server: str) -> bytes:
    """Return the params of a question for this client."""
    if session is None or not session.names_servers:
        return params
    return encode(named(method, members(params), server))


def named(method: str, params: Members, server: str) -> Members:
    """Return the params of a question with the server's name added."""
    if method not in (ELICIT, SAMPLE):
        return params
    shown = dict(params)
    if method == ELICIT:
        shown["message"] = Raw(encode(signed(_text(params, "message"), server)))
        if "requestedSchema" in params:
            form = decoded(params["requestedSchema"], dict[str, Any]) or {}
            shown["requestedSchema"] = Raw(encode(labelled_form(form, server)))
    else:
        prompt = _text(params, "systemPrompt") or "The MCP server of this name makes this request."
        shown["systemPrompt"] = Raw(encode(signed(prompt, server)))
        if _text(params, "includeContext") == _ALL_SERVERS:
            shown["includeContext"] = Raw(b'"thisServer"')
    meta: dict[str, Any] = dict(members(params.get("_meta", b"")))
    shown["_meta"] = Raw(encode({**meta, SERVER_KEY: server}))
    return shown


def signed(text: str, server: str) -> str:
    """Prefix each line with the server's name, so that no line can pass for another server's."""
    lines = [sanitize_text(line) for line in text.splitlines()] or [""]
    return "\n".join(f"[{server}] {line}".rstrip() for line in lines)


def labelled_form(form: Any, server: str) -> Any:
    """Return the schema of a form with labels that show all characters, and that cannot pass for
    texts of another server or agent. Keys and values stay: the answer has them."""
    if isinstance(form, list):
        return [labelled_form(one, server) for one in form]
    if not isinstance(form, dict):
        return form
    found: dict[str, Any] = {}
    for key, value in form.items():
        if key in _LABELS and isinstance(value, str):
            found[key] = _label(value, server)
        elif key == "enumNames" and isinstance(value, list):
            found[key] = [_label(one, server) if isinstance(one, str) else one for one in value]
        else:
            found[key] = labelled_form(value, server)
    return found


def _label(text: str, server: str) -> str:
    lines = sanitize_text(text).splitlines()
    return "\n".join(signed(one, server) if _begins_with_name(one) else one for one in lines)


def _begins_with_name(line: str) -> bool:
    """True for a line that begins with a bracket of any script, as a signed one does."""
    first = normalize("NFKC", line.lstrip()[:1])[:1]
    return bool(first) and first != "(" and category(first) == "Ps"


def named_result(result: bytes, server: str) -> bytes:
    """Return a modern result with the server's name added to its questions."""
    if not may_mention(result, b'"inputRequests"'):
        return result
    fields = members(result)
    questions = members(fields.get("inputRequests", b""))
    if not questions:
        return result
    named_ones = {key: named_question(bytes(raw), server) for key, raw in questions.items()}
    fields["inputRequests"] = Raw(encode(named_ones))
    return encode(fields)


def named_question(raw: bytes, server: str) -> Members:
    """Return a question of a modern result with the server's name added."""
    question = members(raw)
    params = named(_text(question, "method"), members(question.get("params", b"")), server)
    return {**question, "params": Raw(encode(params))} if "params" in question else question


def named_error(error: bytes, server: str) -> bytes:
    """Return the error that lists pages to visit, with the server's name added to each."""
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
