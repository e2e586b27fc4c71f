"""`admit` checks a POST without a server, a task or a socket."""

import json
from typing import Any

import pytest

from portico.edge.transport.guard import Head
from portico.edge.transport.posts import Posted, admit
from portico.edge.transport.reply import Reply
from tests.support.messages import initialize, modern
from tests.support.web import BOTH, mirrored, tool_call

LIST = modern("tools/list")
NOTICE = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def admitted(
    message: dict[str, Any], *, draining: bool = False, accept: str = BOTH, **headers: str
) -> Posted | Reply:
    named = mirrored(message) if "_meta" in message.get("params", {}) else {}
    given = named | {"accept": accept} | {k.replace("_", "-"): v for k, v in headers.items()}
    head = Head({name.encode(): value.encode() for name, value in given.items()})
    return admit(head, json.dumps(message).encode(), None, draining)


@pytest.mark.parametrize(
    "message, how, status",
    [
        (LIST, {"accept": "application/json"}, 406),
        (LIST, {"draining": True}, 503),
        (LIST, {"mcp_method": "prompts/list"}, 400),
        (initialize(), {"draining": True}, 503),
        (initialize(), {"accept": "text/html"}, 406),
        (NOTICE, {}, 400),
        (NOTICE, {"mcp_session_id": "old", "mcp_protocol_version": "2025-11-25"}, 404),
        (tool_call("echo"), {"mcp_session_id": "old"}, 404),
    ],
)
def test_what_is_refused_gets_its_status(
    message: dict[str, Any], how: dict[str, Any], status: int
) -> None:
    refused = admitted(message, **how)
    assert isinstance(refused, Reply)
    assert refused.status == status


def test_a_modern_request_is_a_call_of_no_session() -> None:
    posted = admitted(LIST, mcp_session_id="old", accept="text/event-stream, application/json")
    assert isinstance(posted, Posted)
    assert posted.call is posted.message
    assert posted.session is None
    assert posted.streams


def test_a_session_may_be_begun_with_a_stale_id_and_is_not_a_call() -> None:
    posted = admitted(initialize(), mcp_session_id="old")
    assert isinstance(posted, Posted)
    assert posted.call is None
