"""Components of wasmcp's interfaces answer as MCP servers do, in each of their versions."""

from pathlib import Path
from typing import Any

import pytest
from wasmtime import WasmtimeError

from portico.library.wasm.guest import GuestError
from portico.library.wasm.host_interfaces import define_wasmcp_imports
from portico.library.wasm.wasmcp import UnknownVersion, WasmcpCapability, wasmcp_capabilities
from portico.library.wasm.wasmcp_handlers import wasmcp_handler
from tests.library.wasm import building
from tests.library.wasm.instances import component, engine, entered, exports

FOLDERS = ("v20251125", "v20250618", "beta")
every_version = pytest.mark.parametrize("folder", FOLDERS)


def built(folder: str) -> Path:
    return building.javascript("wasmcp.js", building.WIT / folder, "everything")


def capability(source: Path, method: str) -> WasmcpCapability:
    found = wasmcp_capabilities(exports(source).functions)
    return next(one for one in found if method in one.methods)


def answer(source: str | Path, method: str, **params: object) -> Any:
    path = built(source) if isinstance(source, str) else source
    return capability(path, method).answer(entered(path), method, params)


@every_version
def test_a_component_with_several_interfaces_is_several_capabilities(folder: str) -> None:
    found = wasmcp_capabilities(exports(built(folder)).functions)
    assert len(found) == 4
    assert {"tools/list", "resources/read", "prompts/get", "completion/complete"} <= frozenset(
        method for one in found for method in one.methods
    )


@every_version
def test_tools_are_listed_page_by_page(folder: str) -> None:
    first = answer(folder, "tools/list")
    tool = first["tools"][0]
    assert first["nextCursor"] == "2"
    assert first["_meta"] == {"page": 1}
    assert tool["inputSchema"]["properties"]["a"] == {"type": "number"}
    assert tool["outputSchema"] == {"type": "object"}
    assert tool["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert (tool["title"], tool["description"]) == ("Add", "Adds two numbers.")
    assert tool["_meta"] == {"x": 1}
    assert [one["name"] for one in answer(folder, "tools/list", cursor="2")["tools"]] == ["wrong"]


def test_icons_are_those_of_the_newest_version() -> None:
    icon = answer("v20251125", "tools/list")["tools"][0]["icons"][0]
    assert icon == {
        "src": "https://example.com/i.png",
        "mimeType": "image/png",
        "sizes": ["48x48"],
        "theme": "dark",
    }


@every_version
def test_a_tool_is_called(folder: str) -> None:
    result = answer(folder, "tools/call", name="add", arguments={"a": 2, "b": 3})
    assert result == {
        "content": [{"type": "text", "text": "5"}],
        "structuredContent": {"sum": 5},
    }


@every_version
def test_every_kind_of_content_is_passed_on(folder: str) -> None:
    result = answer(folder, "tools/call", name="media", arguments={})
    assert result["_meta"] == {"example.com/m": [1]}
    assert result["content"] == [
        {"type": "image", "data": "AQL/", "mimeType": "image/png"},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "note://1", "name": "one", "title": "One", "size": 5},
        {
            "type": "resource",
            "resource": {"uri": "note://1", "text": "inside", "mimeType": "text/plain"},
        },
        {
            "type": "text",
            "text": "last",
            "annotations": {"audience": ["user"], "lastModified": "2026-01-01", "priority": 0.5},
            "_meta": {"k": 1},
        },
    ]


@every_version
def test_a_failed_tool_is_an_error_of_the_tool(folder: str) -> None:
    assert answer(folder, "tools/call", name="wrong")["isError"] is True


@every_version
def test_none_means_that_the_request_is_for_another(folder: str) -> None:
    assert answer(folder, "tools/call", name="nobody") is None
    assert answer(folder, "resources/read", uri="note://9") is None
    assert answer(folder, "prompts/get", name="nobody") is None
    reference = {"type": "ref/prompt", "name": "nobody"}
    argument = {"name": "a", "value": "b"}
    assert answer(folder, "completion/complete", ref=reference, argument=argument) is None


@pytest.mark.parametrize("folder", FOLDERS[:2])
def test_an_error_keeps_its_code_message_and_data(folder: str) -> None:
    with pytest.raises(GuestError) as caught:
        answer(folder, "tools/call", name="refused")
    error = caught.value
    assert (error.code, error.message, error.data) == (-32602, "no such thing", {"why": "test"})


@every_version
def test_a_list_can_fail(folder: str) -> None:
    with pytest.raises(GuestError, match="bad cursor"):
        answer(folder, "tools/list", cursor="bad")


@every_version
def test_json_that_is_none_is_an_error_with_the_field(folder: str) -> None:
    with pytest.raises(GuestError, match="returned a structured-content that is not JSON"):
        answer(folder, "tools/call", name="notJson")


@every_version
def test_resources_are_listed_and_read(folder: str) -> None:
    assert answer(folder, "resources/list")["resources"] == [
        {
            "uri": "note://1",
            "name": "one",
            "size": 5,
            "mimeType": "text/plain",
            "description": "A note.",
        }
    ]
    assert answer(folder, "resources/templates/list")["resourceTemplates"] == [
        {"uriTemplate": "note://{id}", "name": "note", "title": "Note"}
    ]
    assert answer(folder, "resources/read", uri="note://1")["contents"] == [
        {"uri": "note://1", "text": "hello", "mimeType": "text/plain", "_meta": {"v": 2}}
    ]
    blob = answer(folder, "resources/read", uri="note://blob")["contents"]
    assert blob == [{"uri": "note://blob", "blob": "AID/"}]


@every_version
def test_prompts_are_listed_and_filled(folder: str) -> None:
    argument = {"name": "who", "required": True, "description": "Whom."}
    listed = answer(folder, "prompts/list")["prompts"]
    assert listed == [{"name": "greet", "description": "Greets.", "arguments": [argument]}]
    assert answer(folder, "prompts/get", name="greet", arguments={"who": "Ada"}) == {
        "description": "A greeting.",
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hello Ada"}}],
    }


@every_version
def test_arguments_are_completed(folder: str) -> None:
    result = answer(
        folder,
        "completion/complete",
        ref={"type": "ref/prompt", "name": "greet"},
        argument={"name": "who", "value": "A"},
        context={"arguments": {"x": "y"}},
    )
    values = ["who:A", '{"x":"y"}']
    assert result == {"completion": {"values": values, "total": 12, "hasMore": True}}
    template = {"type": "ref/resource", "uri": "note://{id}"}
    argument = {"name": "id", "value": ""}
    result = answer(folder, "completion/complete", ref=template, argument=argument)
    assert result == {"completion": {"values": ["note://{id}"]}}


@pytest.mark.parametrize(
    "method, params",
    [
        ("tools/call", {}),
        ("tools/call", {"name": 5}),
        ("tools/list", {"cursor": 5}),
        ("resources/read", {"uri": None}),
        ("prompts/get", {"name": ["x"]}),
        ("completion/complete", {"ref": "x", "argument": {"name": "a", "value": "b"}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "a"}, "argument": 1}),
        ("completion/complete", {"ref": {"type": "ref/resource"}, "argument": {}}),
    ],
)
def test_params_of_the_wrong_type_are_refused(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(GuestError, match=f"invalid params of {method}") as caught:
        answer("v20251125", method, **params)
    assert caught.value.code == -32602


@pytest.mark.slow
def test_a_python_component_answers_alike() -> None:
    source = building.python("wasmcp.py", building.WIT / "v20251125", "everything")
    listed = answer(source, "tools/list")["tools"]
    assert [tool["name"] for tool in listed] == ["reverse"]
    result = answer(source, "tools/call", name="reverse", arguments={"text": "hello"})
    assert result == {"content": [{"type": "text", "text": "olleh"}]}
    with pytest.raises(GuestError, match="text is missing"):
        answer(source, "tools/call", name="reverse", arguments={})
    assert answer(source, "tools/call", name="nobody") is None
    assert answer(source, "resources/read", uri="note://1")["contents"][0]["text"] == "hello"
    message = answer(source, "prompts/get", name="greet", arguments={"who": "Ada"})["messages"][0]
    assert message["content"]["text"] == "Hello Ada"
    completed = answer(
        source,
        "completion/complete",
        ref={"type": "ref/prompt", "name": "greet"},
        argument={"name": "who", "value": "A"},
    )
    assert completed == {"completion": {"values": ["Ada"]}}


@pytest.mark.parametrize(
    "export, known",
    [
        ("wasmcp:mcp-v20251125/tools@0.2.0", "knows wasmcp:mcp-v20251125@0.1.1;"),
        ("wasmcp:mcp-v20250618/prompts@0.1.7", "knows wasmcp:mcp-v20250618@0.1.8;"),
        ("wasmcp:protocol/tools@0.1.0-beta.3", "knows wasmcp:protocol@0.1.0-beta.2;"),
        ("wasmcp:protocol/tools", "knows wasmcp:protocol@0.1.0-beta.2;"),
        ("wasmcp:mcp-v20991231/tools@9.0.0", "wasmcp:mcp-v20251125@0.1.1, wasmcp:mcp-v20250618"),
    ],
)
def test_an_unknown_version_is_refused_with_both_versions(export: str, known: str) -> None:
    with pytest.raises(UnknownVersion) as caught:
        wasmcp_capabilities([(export, "list-tools")])
    assert export in str(caught.value)
    assert known in str(caught.value)


LIAR = """(component
  (core module $m (func (export "f") (result i32) i32.const 1))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "f")))
  (instance $tools (export "list-tools" (func $f)) (export "call-tool" (func $f)))
  (export "wasmcp:mcp-v20251125/tools@0.1.1" (instance $tools)))"""


def test_an_interface_that_lacks_a_function_is_refused() -> None:
    export = "wasmcp:mcp-v20251125/tools@0.1.1"
    with pytest.raises(UnknownVersion, match="without its function call-tool"):
        wasmcp_capabilities([(export, "list-tools")])


def test_a_component_that_lies_about_its_types_fails_its_calls() -> None:
    found = wasmcp_capabilities(exports(LIAR).functions)
    with pytest.raises(GuestError, match="invalid params of tools/list: takes 0 arguments, not 2"):
        found[0].answer(entered(LIAR), "tools/list", {})


class Strange:
    """A guest whose functions return anything."""

    def __init__(self, returned: object) -> None:
        self._returned = returned

    def call(self, interface: str, function: str, *args: object) -> object:
        return self._returned

    def client_stream(self) -> None:
        return None


@pytest.mark.parametrize(
    "returned", [5, "x", [], {}, {"ok": 5}, {"err": 5}, {"ok": {"content": 3}}, {"err": {}}]
)
def test_a_result_of_another_type_is_an_error(returned: object) -> None:
    found = capability(built("v20251125"), "tools/call")
    with pytest.raises(GuestError, match="has other types than the interface of this name"):
        found.answer(Strange(returned), "tools/call", {"name": "x"})


@pytest.mark.parametrize(
    "export, known",
    [
        ("wasmcp:mcp-v20251125/server-handler@0.2.0", "wasmcp:mcp-v20251125/server-handler@0.1.1;"),
        ("wasmcp:server/handler", "knows wasmcp:server/handler@0.1.0-beta.2;"),
        ("wasmcp:mcp-v20991231/server-handler@0.1.1", "wasmcp:server/handler@0.1.0-beta.2;"),
    ],
)
def test_middleware_of_an_unknown_version_is_refused_with_both_versions(
    export: str, known: str
) -> None:
    with pytest.raises(UnknownVersion) as caught:
        wasmcp_handler([(export, "handle")])
    assert export in str(caught.value)
    assert known in str(caught.value)


def test_middleware_that_lacks_its_function_is_refused() -> None:
    export = "wasmcp:server/handler@0.1.0-beta.2"
    with pytest.raises(UnknownVersion, match="without its function handle-request"):
        wasmcp_handler([(export, "handle")])


def test_a_function_that_the_host_lacks_says_which() -> None:
    from wasmtime import Store, WasiConfig
    from wasmtime.component import Linker

    source = building.javascript("asking.js", building.WIT / "v20251125", "asking")
    store, linker = Store(engine()), Linker(engine())
    store.set_wasi(WasiConfig())
    linker.add_wasip2()
    define_wasmcp_imports(linker, component(source), engine())
    guest = exports(source).enter(store, linker.instantiate(store, component(source)))
    with pytest.raises(WasmtimeError, match=r"called wasmcp:mcp-v20251125/server-auth\.decode"):
        guest.call("", "ask")


def test_the_host_can_provide_a_function() -> None:
    from wasmtime import Store, WasiConfig
    from wasmtime.component import Linker

    source = building.javascript("asking.js", building.WIT / "v20251125", "asking")
    store, linker = Store(engine()), Linker(engine())
    store.set_wasi(WasiConfig())
    linker.add_wasip2()
    asked: list[object] = []

    def decode(_: object, token: bytes) -> None:
        asked.append(token)

    functions = {("wasmcp:mcp-v20251125/server-auth", "decode"): decode}
    define_wasmcp_imports(linker, component(source), engine(), functions)
    guest = exports(source).enter(store, linker.instantiate(store, component(source)))
    assert guest.call("", "ask") == "refused"
    assert asked == [b"\x01\x02"]
