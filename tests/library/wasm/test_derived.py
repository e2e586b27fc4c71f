"""The functions of any component are tools."""

import os
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from portico.library.wasm.derived import DerivedTools, ToolNameClash, derive
from portico.library.wasm.sidecar import Described, InvalidSidecar, Sidecar, read_sidecar
from tests.library.wasm import building
from tests.library.wasm.instances import entered, exports

TWO_ADDS = """(component
  (core module $m (func (export "f") (result i32) i32.const 1))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "f")))
  (instance $one (export "add" (func $f)))
  (instance $two (export "add" (func $f)))
  (export "example:a/one@1.0.0" (instance $one))
  (export "example:a/two@1.0.0" (instance $two)))"""
HYPHENS = """(component
  (core module $m (func (export "f") (result i32) i32.const 1))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "f")))
  (export "NAME" (func $f)))"""


def kitchen() -> Path:
    return building.javascript("kitchen.js", building.WIT / "kitchen", "kitchen")


def tools(sidecar: Sidecar | None = None) -> DerivedTools:
    found, _ = derive(exports(kitchen()), sidecar or Sidecar())
    assert found is not None
    return found


def definitions(sidecar: Sidecar | None = None) -> dict[str, dict[str, Any]]:
    result: Any = tools(sidecar).answer(entered(kitchen()), "tools/list", {})
    return {tool["name"]: tool for tool in result["tools"]}


def called(name: str, **arguments: object) -> Any:
    params = {"name": name, "arguments": arguments}
    return tools().answer(entered(kitchen()), "tools/call", params)


def test_functions_of_the_root_and_of_interfaces_are_tools() -> None:
    assert {
        "shout",
        "add",
        "divide",
        "move_by",
        "check",
        "note",
        "of_nested",
    } <= definitions().keys()


def test_every_schema_is_valid() -> None:
    for tool in definitions().values():
        for key in ("inputSchema", "outputSchema"):
            if key in tool:
                jsonschema_rs.meta.validate(tool[key])
                assert tool[key]["type"] == "object"


def test_results_fit_the_schema_that_the_list_names() -> None:
    schemas = definitions()
    calls: dict[str, dict[str, Any]] = {
        "add": {"a": 1, "b": 2},
        "divide": {"a": 1, "b": 2},
        "move_by": {"start": {"x": 1, "y": 2}, "by": {"x": 3, "y": 4}},
    }
    for name, arguments in calls.items():
        content = called(name, **arguments)["structuredContent"]
        assert jsonschema_rs.is_valid(schemas[name]["outputSchema"], content), name


def test_a_value_is_text_and_structured_content() -> None:
    text = {"type": "text", "text": "3"}
    assert called("add", a=1, b=2) == {"content": [text], "structuredContent": {"result": 3}}
    assert called("shout", text="hi")["content"] == [{"type": "text", "text": "HI"}]


def test_a_record_is_the_structured_content_itself() -> None:
    result = called("move_by", start={"x": 1, "y": 2}, by={"x": 3, "y": 4})
    assert result["structuredContent"] == {"x": 4, "y": 6}


def test_a_function_without_a_result_returns_no_content() -> None:
    assert called("note", text="x") == {"content": []}
    assert called("check", text="fine") == {"content": []}


def test_an_error_is_a_failed_call() -> None:
    assert called("divide", a=1, b=0) == {
        "content": [{"type": "text", "text": "division by zero"}],
        "isError": True,
    }
    assert called("check", text="bad")["content"][0]["text"] == '{"x":1,"y":2}'
    assert called("check", text="bad")["isError"] is True


@pytest.mark.parametrize(
    "arguments, why",
    [
        ({"a": 1, "b": 2**31}, "b: 2147483648 is out of range; a s32 is -2147483648 to 2147483647"),
        ({"a": 1}, "b is missing"),
        ({"a": 1, "b": 2, "c": 3}, "there is no parameter 'c'"),
        ({"a": "1", "b": 2}, "a: must be an integer, not '1'"),
    ],
)
def test_wrong_arguments_fail_the_call_with_a_reason(arguments: dict[str, Any], why: str) -> None:
    result = called("add", **arguments)
    assert result["isError"] is True
    assert result["content"][0]["text"] == f"invalid arguments of add: {why}"


def test_an_unknown_tool_is_not_mine() -> None:
    assert called("subtract") is None


def test_functions_with_resources_are_skipped_with_the_reason() -> None:
    _, skipped = derive(exports(kitchen()), Sidecar())
    reason = "takes or returns a resource, which exists only inside the component"
    assert dict(skipped) == {
        "work/[constructor]counter": reason,
        "work/[method]counter.next": reason,
        "work/fresh": reason,
    }


def test_what_a_compiler_leaves_for_its_start_is_no_tool() -> None:
    assert ("", "init") in exports(kitchen()).functions
    assert "init" not in definitions()


def test_an_init_that_a_component_means_is_a_tool() -> None:
    found, _ = derive(exports(HYPHENS.replace("NAME", "init")), Sidecar())
    assert found is not None


def test_a_sidecar_describes_functions_and_parameters(tmp_path: Path) -> None:
    component = tmp_path / "calc.wasm"
    component.with_name("calc.wasm.toml").write_text(
        '[functions."work/add"]\ndescription = "Adds."\ntitle = "Sum"\nname = "sum"\n'
        'parameters = { a = "The first." }\n[functions.shout]\ndescription = "Shouts."\n'
    )
    found = definitions(read_sidecar(f"{component}.toml"))
    assert found["sum"]["description"] == "Adds."
    assert found["sum"]["title"] == "Sum"
    assert found["sum"]["inputSchema"]["properties"]["a"]["description"] == "The first."
    assert found["shout"]["description"] == "Shouts."
    assert "add" not in found


def test_a_component_without_a_sidecar_has_no_descriptions(tmp_path: Path) -> None:
    assert read_sidecar(str(tmp_path / "calc.wasm.toml")) == Sidecar()


BOMBS = {
    "nested": ("a = " + "[" * 50_000, "is not TOML"),
    "dotted": ("a." * 20_000 + "a = 1", "has a line with more than 500 dots"),
    "inline": ("a = {" + "a." * 20_000 + "a = 1}", "has a line with more than 500 dots"),
    "large": ("# " + "x" * 300_000, "cannot read calc.wasm.toml: it is too large"),
    "number": ("a = 1" + "0" * 100_000, "is not TOML"),
    "binary": ("\x00", "is not TOML"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_sidecar_that_would_keep_its_reader_busy_is_refused(tmp_path: Path, name: str) -> None:
    text, why = BOMBS[name]
    path = tmp_path / "calc.wasm.toml"
    path.write_text(text)
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(sys.int_info.default_max_str_digits)  # other tests set it to 0
    try:
        with pytest.raises(InvalidSidecar, match=why):
            read_sidecar(str(path))
    finally:
        sys.set_int_max_str_digits(before)


def test_a_sidecar_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "calc.wasm.toml")
    with pytest.raises(InvalidSidecar, match="it is not a file"):
        read_sidecar(str(tmp_path / "calc.wasm.toml"))


def test_a_sidecar_of_a_function_that_does_not_exist_is_refused() -> None:
    sidecar = Sidecar({"subtract": Described("Subtracts.")})
    with pytest.raises(InvalidSidecar, match="describes 'subtract', which the component does not"):
        derive(exports(kitchen()), sidecar)


def test_a_sidecar_of_a_parameter_that_does_not_exist_is_refused() -> None:
    sidecar = Sidecar({"add": Described(parameters={"z": "?"})})
    with pytest.raises(InvalidSidecar, match="the parameter 'z' of 'add', which it does not have"):
        derive(exports(kitchen()), sidecar)


@pytest.mark.parametrize(
    "text, why",
    [
        ("[", "is not TOML"),
        ("functions = 1", "does not describe functions"),
        ("[functions.add]\ndescripton = 'x'", "unknown field `descripton`"),
    ],
)
def test_a_sidecar_that_cannot_be_read_says_why(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "calc.wasm.toml").write_text(text)
    with pytest.raises(InvalidSidecar, match=why):
        read_sidecar(str(tmp_path / "calc.wasm.toml"))


def test_names_that_clash_are_refused_with_both_functions() -> None:
    with pytest.raises(
        ToolNameClash, match="one/add and two/add would both be the tool 'add'; give"
    ):
        derive(exports(TWO_ADDS), Sidecar())


def test_a_sidecar_resolves_a_clash() -> None:
    sidecar = Sidecar({"two/add": Described(name="add_two")})
    found, _ = derive(exports(TWO_ADDS), sidecar)
    assert found is not None
    listed: Any = found.answer(entered(TWO_ADDS), "tools/list", {})
    assert [tool["name"] for tool in listed["tools"]] == ["add", "add_two"]


@pytest.mark.parametrize("name", ["with space", "a" * 129, "naïve"])
def test_a_name_that_no_client_takes_is_refused(name: str) -> None:
    with pytest.raises(
        ToolNameClash, match=r"a name has 1 to 128 letters.*; give it another `name`"
    ):
        derive(exports(TWO_ADDS), Sidecar({"two/add": Described(name=name)}))
