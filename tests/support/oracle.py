"""Holds every message that Portico sends against the wire schema of the version it is sent in."""

import json
from functools import cache
from typing import Any

import jsonschema_rs

from tests.support.shared import shared
from tests.support.task_schema import KINDS, task_schema

MODERN = "2026-07-28"
_ASSUMED = "2025-11-25"  # Portico's version before the client has sent one
_META = "io.modelcontextprotocol/protocolVersion"
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_MODERN_ONLY = ("server/discover", "subscriptions/listen")
_RESULTS = {
    "initialize": "InitializeResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
}
_TASK_RESULTS = {
    "tasks/get": "GetTaskResult",
    "tasks/list": "ListTasksResult",
    "tasks/cancel": "CancelTaskResult",
    "tasks/result": "CallToolResult",
}
"""The results about tasks in 2025-11-25; only calls of tools are tasks of a server."""
_ACKNOWLEDGED = {"tasks/get": "DetailedTask", "tasks/update": "Done", "tasks/cancel": "Done"}
"""The results about tasks in their extension to 2026-07-28."""
# The modern schema defines the data of these three errors.
_ERRORS = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}


class WireOracle:
    """Listens to both ways of one connection or session; `checked` counts the messages held."""

    def __init__(self, header: str | None = None) -> None:
        """`header` is the version an HTTP request names, where the body need not."""
        self.version: str | None = None
        """The version that `initialize` negotiated; None without a handshake."""
        self.checked = 0
        self.problems: list[str] = []
        self._header = header
        self._asked: dict[str, tuple[str, str]] = {}
        self._modern = header == MODERN

    def client_sent(self, body: bytes) -> None:
        """Record a request and its version."""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return
        for member in message if isinstance(message, list) else [message]:
            if isinstance(member, dict) and "id" in member:
                key = json.dumps(member["id"])
                self._asked[key] = (str(member.get("method")), self._version_of(member))

    def server_sent(self, body: bytes) -> None:
        """Check one message, or each of a batch."""
        try:
            message = json.loads(body)
        except ValueError as error:
            self.problems.append(f"not JSON ({error}): {body[:300]!r}")
            return
        if isinstance(message, list) and self.version != "2025-03-26":
            self.problems.append(f"a batch in {self.version}: {body[:300]!r}")
        for member in message if isinstance(message, list) else [message]:
            self.checked += 1
            if "method" in member:
                self._check_ours(member)
            elif "error" in member:
                self._check_error(member)
            else:
                self._check_result(member)

    def _version_of(self, message: dict[str, Any]) -> str:
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        if message.get("method") in _MODERN_ONLY or (isinstance(meta, dict) and _META in meta):
            self._modern = True
            return MODERN
        return self._current()

    def _current(self) -> str:
        return self.version or (MODERN if self._modern else self._header or _ASSUMED)

    def _check_ours(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        listening = _SUBSCRIPTION in (params.get("_meta") or {})
        version = MODERN if listening else self._current()
        if "id" in message and version == MODERN:
            self.problems.append(f"a request to a modern client: {_shown(message)}")
        elif message["method"] == "notifications/tasks":
            self._hold(message, "TaskNotification", version)
        else:
            kind = "ServerRequest" if "id" in message else "ServerNotification"
            self._hold(message, kind, version)

    def _check_error(self, message: dict[str, Any]) -> None:
        version = self._current()
        if message.get("id") is None:
            # Nothing readable to answer to: null as JSON-RPC has it, and no id from 2025-11-25 on.
            if ("id" in message) != (version < "2025-11-25"):
                self.problems.append(f"{version}: wrong form of no id: {_shown(message)}")
            message = {**message, "id": 0}
        else:
            _, version = self._asked_for(message)
        kind = "JSONRPCError" if version < "2025-11-25" else "JSONRPCErrorResponse"
        self._hold(message, kind, version)
        code = message["error"].get("code")
        if version == MODERN and code in _ERRORS:
            self._hold(message, _ERRORS[code], version)

    def _check_result(self, message: dict[str, Any]) -> None:
        method, version = self._asked_for(message)
        result = message["result"]
        if method == "initialize" and "protocolVersion" in result:
            self.version = version = result["protocolVersion"]
        envelope = "JSONRPCResponse" if version < "2025-11-25" else "JSONRPCResultResponse"
        self._hold(message, envelope, version)
        self._hold(result, _kind(method, result, version), version)

    def _asked_for(self, message: dict[str, Any]) -> tuple[str, str]:
        asked = self._asked.get(json.dumps(message.get("id")))
        if asked is None:
            self.problems.append(f"an answer to what nobody asked: {_shown(message)}")
            return "", self._current()
        return asked

    def _hold(self, value: Any, kind: str, version: str) -> None:
        for error in _validator(version, kind).iter_errors(value):
            self.problems.append(f"{version} {kind}: {error.message[:300]}: {_shown(value)}")
            return


def _kind(method: str, result: dict[str, Any], version: str) -> str:
    """The definition that a result must match."""
    if version == MODERN:
        by_type = {"input_required": "InputRequiredResult", "task": "CreateTask"}
        found = by_type.get(str(result.get("resultType")), _ACKNOWLEDGED.get(method))
        return found or _RESULTS.get(method, "Result")
    if "task" in result and method == "tools/call":
        return "CreateTaskResult"
    return _TASK_RESULTS.get(method) or _RESULTS.get(method, "Result")


def _shown(value: Any) -> str:
    return json.dumps(value)[:300]


@cache
def _validator(version: str, kind: str) -> Any:
    schema = _schema(version)
    if kind in KINDS:
        schema = task_schema(schema)
    home = "$defs" if "$defs" in schema else "definitions"
    return jsonschema_rs.validator_for(
        {"$schema": schema["$schema"], home: schema[home], "$ref": f"#/{home}/{kind}"}
    )


@cache
def _schema(version: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(shared(f"schemas/mcp/{version}.json").read_text())
    return schema
