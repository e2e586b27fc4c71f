"""Components in `portico run`, `serve`, `call` and `inspect`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portico.library.components.classify import ComponentError, classify
from portico.upstream.process.process_tree import processes
from tests.library.wasm.hosting import attacking_guest, home, own_guest
from tests.library.wasm.wat_guests import SLEEPER, importing, written
from tests.serve.components import CALC, Workshop
from tests.serve.gateway import Pipes
from tests.support.running import Piped, initialize_params
from tests.wrap.faults import alive, command_line, descendants, until

pytestmark = pytest.mark.slow
CLIENT = {"name": "test", "version": "1"}


def portico(folder: Path, *words: str) -> list[str]:
    return ["env", f"PORTICO_HOME={home(folder)}", sys.executable, "-m", "portico", *words]


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        portico(folder, *words), cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def calc(tmp_path: Path) -> Path:
    return Path(shutil.copy(own_guest(), tmp_path / "calc.wasm"))


@pytest.fixture
def running(tmp_path: Path, calc: Path) -> Iterator[Piped]:
    with Piped(portico(tmp_path, "run", str(calc))) as piped:
        piped.initialize()
        yield piped


def result(piped: Piped, method: str, **params: Any) -> dict[str, Any]:
    answer = piped.ask(method, params)
    assert "result" in answer, answer
    return dict(answer["result"])


def test_a_component_runs_over_stdio_for_a_legacy_client(running: Piped) -> None:
    assert [one["name"] for one in result(running, "tools/list")["tools"]] == ["add", "fail"]
    called = result(running, "tools/call", name="add", arguments={"a": 1, "b": 2})
    assert called["structuredContent"] == {"sum": 3}
    assert result(running, "resources/read", uri="note://1")["contents"][0]["text"] == "hello"
    prompt = result(running, "prompts/get", name="greet", arguments={"who": "Ada"})
    assert prompt["messages"][0]["content"]["text"] == "Hello Ada"


def test_a_gateway_serves_components_beside_python_ones(tmp_path: Path, calc: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.file("plain.py", CALC)
    config = workshop.write({"calc": {"path": str(calc)}, "plain": {"path": "plain.py"}})
    with Pipes(home(tmp_path), config) as gateway:
        gateway.initialize()
        assert gateway.said("calc__add", a=1, b=2) == "3"
        assert gateway.said("plain__add", a=1, b=2) == "3"
        # A new file is another component, which the gateway loads by itself.
        draft = written(SLEEPER, tmp_path, "draft")
        draft.replace(calc)
        assert until(lambda: "calc__divide" in gateway.tools())


def test_a_gateway_reads_descriptions_again_when_they_change(tmp_path: Path, calc: Path) -> None:
    written(SLEEPER, tmp_path, "calc")
    config = Workshop(tmp_path).write({"calc": {"path": str(calc)}})
    sidecar = tmp_path / "calc.wasm.toml"
    with Pipes(home(tmp_path), config) as gateway:
        gateway.initialize()
        assert until(lambda: "calc__add" in gateway.tools())
        for name in ("sum", "total"):
            sidecar.write_text(f'[functions.add]\nname = "{name}"\n')
            assert until(lambda name=name: f"calc__{name}" in gateway.tools())
        sidecar.unlink()
        assert until(lambda: "calc__add" in gateway.tools())


def test_components_compose_with_each_other_and_with_python(tmp_path: Path, calc: Path) -> None:
    (tmp_path / "plain.py").write_text(CALC)
    attacks = shutil.copy(attacking_guest(), tmp_path / "attacks.wasm")
    words = ("run", "--prefix", str(calc), str(attacks), str(tmp_path / "plain.py"))
    with Piped(portico(tmp_path, *words)) as piped:
        piped.initialize()
        for name in ("calc__add", "attacks__add", "plain__add"):
            called = result(piped, "tools/call", name=name, arguments={"a": 1, "b": 2})
            assert called["content"][0]["text"] == "3"


def test_call_and_inspect_take_a_component(tmp_path: Path, calc: Path) -> None:
    called = ran(tmp_path, "call", "calc.wasm", "add", '{"a": 1, "b": 2}', "--json")
    assert json.loads(called.stdout)["structuredContent"] == {"sum": 3}, called.stderr
    shown = ran(tmp_path, "inspect", "calc.wasm")
    assert "a worker of its own, sandboxed" in shown.stdout
    assert "granted   nothing" in shown.stdout
    static = ran(tmp_path, "inspect", "--static", "--json", "calc.wasm")
    component = json.loads(static.stdout)["component"]
    assert (component["kind"], component["grants"]["sandboxed"]) == ("wasm", True)


def test_grants_of_a_command_line_are_used_and_printed_back(tmp_path: Path, calc: Path) -> None:
    (tmp_path / "data").mkdir()
    grants = ("--grant", "calc:files=data:rw", "--grant", "calc:tools=a*", "--grant=calc:time=5s")
    shown = ran(tmp_path, "inspect", "calc.wasm", *grants)
    for line in (f"files={tmp_path / 'data'}:rw", "tools=a*", "time=5s"):
        assert f"granted   {line}\n" in shown.stdout
    assert "  add  " in shown.stdout
    assert "  fail" not in shown.stdout
    with Piped(portico(tmp_path, "run", str(calc), "--grant", "calc:tools=f*")) as piped:
        piped.initialize()
        assert [one["name"] for one in result(piped, "tools/list")["tools"]] == ["fail"]


def test_imports_without_a_grant_are_reported_when_a_component_is_loaded(tmp_path: Path) -> None:
    source = written(importing("portico:mcp/http@0.1.0"), tmp_path)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
    asked = [("initialize", hello), ("tools/list", {})]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        for id, (method, params) in enumerate(asked)
    ]
    for grants in ((), ("--grant", "guest:http=example.com")):
        done = subprocess.run(
            portico(tmp_path, "run", str(source), *grants),
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert '"name":"one"' in done.stdout
        reported = "guest: imports portico:mcp/http, but no host is granted" in done.stderr
        assert reported is not bool(grants)


def test_the_first_call_waits_for_the_compiler_with_progress(tmp_path: Path, calc: Path) -> None:
    # To compile it takes seconds, and the worker answers in the meantime.
    fresh = ["env", f"PORTICO_HOME={tmp_path / 'fresh'}", sys.executable, "-m", "portico"]
    done = subprocess.run(
        [*fresh, "call", calc.name, "add", '{"a": 1, "b": 2}'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == '3\n{\n  "sum": 3\n}\n', done.stderr
    assert "compiling calc" in done.stderr


@pytest.mark.parametrize(
    ("grant", "why"),
    [
        ("calc:files=gone", "there is no such folder"),
        ("other:files=data", "there is no component 'other'; the components are calc"),
        ("calc", "write NAME:KEY=VALUE"),
        ("calc:secrets=key=${NOBODY}", "NOBODY is not set"),
    ],
)
def test_a_wrong_grant_of_a_command_line_is_explained(
    tmp_path: Path, calc: Path, grant: str, why: str
) -> None:
    refused = ran(tmp_path, "inspect", "--static", str(calc), "--grant", grant)
    assert refused.returncode in (1, 2)
    assert why in refused.stderr


def test_nothing_can_be_granted_to_a_python_component(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(CALC)
    refused = ran(tmp_path, "inspect", "--static", "plain.py", "--grant", "plain:env=HOME")
    assert "plain is not sandboxed, so nothing can be granted to it" in refused.stderr


def test_no_worker_outlives_a_portico_that_is_killed(tmp_path: Path, calc: Path) -> None:
    with Piped(portico(tmp_path, "run", str(calc))) as piped:
        piped.initialize()
        result(piped, "tools/call", name="add", arguments={"a": 1, "b": 2})
        kin = descendants(piped.process.pid)
        assert kin
        piped.process.kill()
        assert until(lambda: not alive(kin)), "a worker outlived Portico"


def test_code_that_a_killed_portico_needed_is_compiled_for_the_next(
    tmp_path: Path, calc: Path
) -> None:
    fresh = tmp_path / "fresh"
    command = ["env", f"PORTICO_HOME={fresh}", sys.executable, "-m", "portico", "run", str(calc)]
    with Piped(command) as piped:
        piped.start("initialize", initialize_params("2025-11-25"))
        assert until(lambda: any(descendants(job) for job in jobs(fresh)))  # it compiles
        piped.process.kill()
        assert until(lambda: not jobs(fresh)), "the job goes on"
    compiled = sorted(path.suffix for path in (fresh / "cache" / "wasm").iterdir())
    assert compiled == [".cwasm", ".sig"]


def jobs(folder: Path) -> list[int]:
    """The jobs that compile for a home of Portico."""
    lines = {pid: command_line(pid) for pid in processes()}
    return [pid for pid, line in lines.items() if "compile_job" in line and str(folder) in line]


BAD_FILES = {
    "text": (b"hello there", "is not WebAssembly"),
    "empty": (b"", "the file is empty"),
    "head": (b"\0asm\x0d\0", "the file is truncated"),
    "core": (b"\0asm\1\0\0\0", "a core module, not a component"),
    "future": (b"\0asm\x0e\0\1\0", "of an unknown version"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_is_not_a_component_is_refused_with_what_it_is(
    tmp_path: Path, name: str
) -> None:
    content, why = BAD_FILES[name]
    path = tmp_path / f"{name}.wasm"
    path.write_bytes(content)
    with pytest.raises(ComponentError, match=why):
        classify(str(path))


def test_a_truncated_component_is_refused_when_it_starts(tmp_path: Path, calc: Path) -> None:
    calc.write_bytes(calc.read_bytes()[:-1000])
    refused = ran(tmp_path, "call", "calc.wasm", "add").stderr
    assert "the file is truncated" in refused
    assert "through the gateway" not in refused  # no server has the name of a file


def test_without_wasmtime_the_error_says_how_to_install_it(
    calc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ComponentError, match=r"pip install 'portico\[wasm\]'"):
        classify(str(calc))


def test_a_component_cannot_be_loaded_into_the_gateway(tmp_path: Path, calc: Path) -> None:
    config = Workshop(tmp_path).write({"calc": {"path": str(calc), "in_process": True}})
    shown = ran(tmp_path, "inspect", "--config", str(config), "calc")
    assert "cannot be loaded into this process" in shown.stdout + shown.stderr
