"""What wasmcp's typed interfaces lose of MCP, field by field, and what passes them unchanged."""

import json
from functools import cache
from typing import Any

import pytest
from wasmtime.component import ComponentInstanceType

from portico.library.wasm.handled_request import HandledRequest, PassedBy
from portico.library.wit.wit_types import Shape, signature_of
from tests.library.wasm import building
from tests.library.wasm.instances import component, engine

VERSIONS = {
    "v20251125": ("reaching-middleware", {}, "wasmcp:mcp-v20251125/server-handler@0.1.1"),
    "v20250618": (
        "reaching-middleware",
        {"v20251125": "v20250618", "0.1.1": "0.1.8"},
        "wasmcp:mcp-v20250618/server-handler@0.1.8",
    ),
    "beta": ("middleware", {}, "wasmcp:server/handler@0.1.0-beta.2"),
}
ICONS = [{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"]}]
META: dict[str, Any] = {"example.com/x": [1, {"y": None}]}
NOTES = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01"}
TOOL = {
    "name": "add",
    "title": "Add",
    "description": "Adds.",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object"},
    "annotations": {"title": "A", "readOnlyHint": True, "idempotentHint": False, "x-odd": 1},
    "icons": ICONS,
    "execution": {"taskSupport": "optional"},
    "_meta": META,
    "x-odd": 1,
}
RESOURCE = {
    "uri": "note:1",
    "name": "one",
    "title": "One",
    "description": "A note.",
    "mimeType": "text/plain",
    "size": 5,
    "annotations": NOTES,
    "icons": ICONS,
    "_meta": META,
    "x-odd": 1,
}
TEMPLATE = {
    **{k: v for k, v in RESOURCE.items() if k not in ("uri", "size")},
    "uriTemplate": "n:{x}",
}
PROMPT = {
    "name": "greet",
    "title": "Greet",
    "description": "Greets.",
    "arguments": [
        {"name": "who", "title": "Who", "description": "Whom.", "required": True, "x": 1}
    ],
    "icons": ICONS,
    "_meta": META,
    "x-odd": 1,
}
CONTENT: list[dict[str, Any]] = [
    {"type": "text", "text": "hi", "annotations": NOTES, "_meta": META, "x-odd": 1},
    {"type": "image", "data": "AQID", "mimeType": "image/png", "_meta": META},
    {"type": "audio", "data": "AQID", "mimeType": "audio/wav", "annotations": NOTES},
    {"type": "resource_link", **RESOURCE},
    {
        "type": "resource",
        "resource": {"uri": "note:1", "mimeType": "text/plain", "text": "a", "_meta": META, "x": 1},
        "annotations": NOTES,
    },
    {"type": "resource", "resource": {"uri": "note:2", "blob": "AQID", "mimeType": "image/png"}},
]
MODERN = {"resultType": "complete", "ttlMs": 5, "cacheScope": "private", "_meta": META, "x-odd": 1}
RESULTS: dict[str, dict[str, Any]] = {
    "tools/list": {**MODERN, "tools": [TOOL], "nextCursor": "2"},
    "tools/call": {
        **MODERN,
        "content": CONTENT,
        "isError": False,
        "structuredContent": {"sum": 3, "list": [1.5, None]},
    },
    "resources/list": {**MODERN, "resources": [RESOURCE]},
    "resources/templates/list": {**MODERN, "resourceTemplates": [TEMPLATE]},
    "resources/read": {**MODERN, "contents": [CONTENT[4]["resource"], CONTENT[5]["resource"]]},
    "prompts/list": {**MODERN, "prompts": [PROMPT]},
    "prompts/get": {
        **MODERN,
        "description": "A greeting.",
        "messages": [{"role": "user", "content": CONTENT[0], "x-odd": 1}],
    },
    "completion/complete": {
        **MODERN,
        "completion": {"values": ["a", "b"], "total": 12, "hasMore": True, "x-odd": 1},
    },
}
PARAMS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "add", "arguments": {"a": [1.5, None]}},
    "resources/read": {"uri": "note:1"},
    "prompts/get": {"name": "greet", "arguments": {"who": "Ada"}},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "greet", "title": "Greet"},
        "argument": {"name": "who", "value": "A"},
        "context": {"arguments": {"a": "b"}},
    },
}
ENVELOPE = {"resultType", "ttlMs", "cacheScope", "x-odd"}
LOST = {
    "tools/list": {
        "tools.annotations.x-odd",
        "tools.execution.taskSupport",
        "tools.x-odd",
    },
    "tools/call": {"content.x-odd", "content.resource.x"},
    "resources/list": {"resources.x-odd"},
    "resources/templates/list": {"resourceTemplates.x-odd"},
    "resources/read": {"contents.x"},
    "prompts/list": {"prompts.arguments.x", "prompts.x-odd"},
    "prompts/get": {"messages.x-odd", "messages.content.x-odd"},
    "completion/complete": {"completion.x-odd"},
}
LOST_BEFORE = {
    "tools/list": {"tools.icons"},
    "tools/call": {"content.icons"},
    "resources/list": {"resources.icons"},
    "resources/templates/list": {"resourceTemplates.icons"},
    "prompts/list": {"prompts.icons"},
}
"""Lost by the versions before it besides."""
every_version = pytest.mark.parametrize("version", VERSIONS)
every_method = pytest.mark.parametrize("method", RESULTS)


@cache
def results_of(version: str) -> Shape:
    world, of, name = VERSIONS[version]
    file = "early.js" if version == "beta" else "typed.js"
    source = building.javascript(file, building.WIT / version, world, of=of)
    item: Any = component(source).type.imports(engine())[name]
    instance: ComponentInstanceType = getattr(item, "ty", item)
    functions = instance.exports(engine())
    function: Any = functions["handle-request" if version == "beta" else "handle"]
    outcome = signature_of(getattr(function, "ty", function)).result
    assert outcome is not None
    if outcome.kind == "option":
        outcome = outcome.parts[0]
        assert outcome is not None
    results = outcome.parts[0]
    assert results is not None
    return results


def request(method: str) -> HandledRequest:
    params = {**PARAMS.get(method, {}), "_meta": META, "x-odd": 1}
    text = json.dumps({"jsonrpc": "2.0", "id": "odd", "method": method, "params": params})
    return HandledRequest(method, text)


def response(result: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": "odd", "result": result})


def paths(value: Any, path: str = "") -> set[str]:
    """Return the paths of all members of an object; `_meta`, schemas and the like are leaves."""
    if isinstance(value, list):
        return {found for one in value for found in paths(one, path)}
    if not isinstance(value, dict) or path.endswith(("_meta", "Schema", "structuredContent")):
        return {path}
    return {
        found
        for name, one in value.items()
        for found in paths(one, f"{path}.{name}" if path else name)
    }


@every_version
@every_method
def test_a_result_that_was_changed_loses_these_fields(method: str, version: str) -> None:
    handled = request(method)
    outcome = handled.received(method, response(RESULTS[method]), results_of(version))
    # As a guest would that makes all of it anew.
    answered = json.loads(request(method).answered(outcome))["result"]
    lost = LOST[method] | ENVELOPE
    if version != "v20251125":
        lost = lost | {
            path
            for path in paths(RESULTS[method])
            if path.startswith(tuple(LOST_BEFORE.get(method, {"no such path"})))
        }
    assert paths(RESULTS[method]) - paths(answered) == lost
    assert paths(answered) <= paths(RESULTS[method])


@every_version
@every_method
def test_a_result_that_passes_unchanged_loses_nothing(method: str, version: str) -> None:
    handled = request(method)
    raw = json.dumps(RESULTS[method], indent=1)
    text = f'{{"jsonrpc":"2.0","id":"odd","result":{raw}}}'
    answered = handled.answered(handled.received(method, text, results_of(version)))
    assert answered == text


@every_version
def test_an_item_that_passes_unchanged_loses_nothing(version: str) -> None:
    handled = request("tools/list")
    two = [TOOL, {**TOOL, "name": "two"}]
    outcome = handled.received(
        "tools/list", response({**MODERN, "tools": two}), results_of(version)
    )
    listed = outcome["ok"]["value"]["tools"]
    listed[1] = {**listed[1], "name": "three"}
    listed.reverse()
    answered = json.loads(handled.answered(outcome))["result"]["tools"]
    assert answered[1] == TOOL
    assert answered[0]["name"] == "three"
    assert "execution" not in answered[0]


@pytest.mark.parametrize("method", PARAMS)
def test_a_request_that_passes_unchanged_loses_nothing(method: str) -> None:
    handled = request(method)
    sent, text = handled.sent(handled.request)
    assert (sent, json.loads(text)["params"]["x-odd"]) == (method, 1)


@pytest.mark.parametrize("method", PARAMS)
def test_a_request_that_was_changed_keeps_the_params_that_it_has_no_types_for(method: str) -> None:
    handled = request(method)
    changed: Any = {**handled.request, "value": dict(handled.request["value"])}
    if "arguments" in changed["value"]:
        changed["value"]["arguments"] = None
    else:
        changed["value"] |= {"uri": "note:2"} if method == "resources/read" else {"context": None}
    _, text = handled.sent(changed)
    params = json.loads(text)["params"]
    assert (params["_meta"], params["x-odd"]) == (META, 1)
    assert "arguments" not in params
    assert "context" not in params


def test_a_request_of_another_method_keeps_the_metadata_only() -> None:
    handled = request("tools/call")
    listed = {"tag": "tools-list", "value": {"cursor": None}}
    method, text = handled.sent(listed)
    assert (method, json.loads(text)["params"]) == ("tools/list", {"_meta": META})


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "input_required", "inputRequests": {}, "requestState": "x"},
        {"task": {"taskId": "1", "status": "working"}},
    ],
)
@every_version
def test_a_question_and_a_task_pass_by(version: str, result: dict[str, Any]) -> None:
    asked = response(result)
    with pytest.raises(PassedBy) as passed:
        request("tools/call").received("tools/call", asked, results_of(version))
    assert passed.value.response == asked


@every_version
def test_content_that_no_type_has_fails_the_request(version: str) -> None:
    odd = response({**MODERN, "content": [{"type": "hologram", "data": "x"}]})
    outcome = request("tools/call").received("tools/call", odd, results_of(version))
    error = outcome["err"]["value"]
    assert "has content of the type 'hologram', which its types cannot express" in error["message"]


@every_version
def test_an_error_keeps_its_code_message_and_data(version: str) -> None:
    error = {"code": -32602, "message": "no", "data": {"a": [1]}, "x-odd": 1}
    text = json.dumps({"jsonrpc": "2.0", "id": "odd", "error": error}, separators=(",", ":"))
    handled = request("tools/call")
    outcome = handled.received("tools/call", text, results_of(version))
    assert outcome["err"]["tag"] == "invalid-params"
    assert handled.answered(outcome) == text
