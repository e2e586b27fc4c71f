"""Holds every message that Portico sends against the wire schema of the version it is sent in."""

import json
from functools import cache
from typing import Any

import jsonschema_rs

from tests.support.shared import shared

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
_META = "io.modelcontextprotocol/protocolVersion"


class WireOracle:
    """Listens to both ways of one connection; `checked` counts what was held against a schema."""

    def __init__(self) -> None:
        self.version = "2025-11-25"
        self.checked = 0
        self.problems: list[str] = []
        self._asked: dict[str, tuple[str, str]] = {}

    def client_sent(self, body: bytes) -> None:
        """Remember what was asked, and in which version."""
        try:
            message = json.loads(body)
        except ValueError:
            return
        for member in message if isinstance(message, list) else [message]:
            if isinstance(member, dict) and "method" in member and "id" in member:
                key = json.dumps(member["id"])
                self._asked[key] = (str(member["method"]), self._version_of(member))

    def server_sent(self, body: bytes) -> None:
        """Check one message, or each of a batch."""
        message = json.loads(body)
        for member in message if isinstance(message, list) else [message]:
            self._check(member)

    def _version_of(self, message: dict[str, Any]) -> str:
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        stated = meta.get(_META) if isinstance(meta, dict) else None
        return stated if stated == "2026-07-28" else self.version

    def _check(self, message: dict[str, Any]) -> None:
        if "method" in message:
            kind = "ServerRequest" if "id" in message else "ServerNotification"
            modern = "io.modelcontextprotocol/subscriptionId" in json.dumps(message)
            return self._hold(message, kind, "2026-07-28" if modern else self.version)
        method, version = self._asked.get(json.dumps(message.get("id")), ("", self.version))
        if "error" in message:
            if message.get("id") is None:
                return None  # nothing readable to answer to; the id's form has its own test
            kind = "JSONRPCError" if version < "2025-11-25" else "JSONRPCErrorResponse"
            return self._hold(message, kind, version)
        if method == "initialize":
            self.version = version = message["result"]["protocolVersion"]
        envelope = "JSONRPCResponse" if version < "2025-11-25" else "JSONRPCResultResponse"
        self._hold(message, envelope, version)
        result = message["result"]
        kind = _RESULTS.get(method, "Result")
        if result.get("resultType") == "input_required":
            kind = "InputRequiredResult"
        return self._hold(result, kind, version)

    def _hold(self, value: Any, kind: str, version: str) -> None:
        self.checked += 1
        validator = _validator(version, kind)
        for error in validator.iter_errors(value):
            shown = json.dumps(value)[:300]
            self.problems.append(f"{version} {kind}: {error.message[:300]}: {shown}")
            return


@cache
def _validator(version: str, kind: str) -> Any:
    schema = json.loads(shared(f"schemas/mcp/{version}.json").read_text())
    home = "$defs" if "$defs" in schema else "definitions"
    return jsonschema_rs.validator_for(
        {"$schema": schema["$schema"], home: schema[home], "$ref": f"#/{home}/{kind}"}
    )
