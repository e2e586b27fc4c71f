"""A component of WebAssembly: signed, pushed, pulled, and run again by its digest."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.library.distribution.manifest import FUNCTIONS
from tests.library.distribution.own_registry import own_registry
from tests.library.distribution.rigs import Home, docker_registry, run
from tests.library.wasm.wat_guests import SLEEPER, written

pytestmark = pytest.mark.slow


def test_a_wasm_component_is_run_by_digest_and_served_without_its_registry(tmp_path: Path) -> None:
    author, user = Home(tmp_path / "author"), Home(tmp_path / "user")
    file = written(SLEEPER, tmp_path)
    with docker_registry(tmp_path / "registry") as registry:
        author.write(registry.host).portico("key", "new", tmp_path / "ada.key")
        sign = ("--sign", "--key", tmp_path / "ada.key")
        digest = author.ok("push", *sign, file, "team:calc@1.0")["digest"]
        table = f'[trust.keys.ada]\nfile = "{tmp_path}/ada.key.pub"\nsigns_for = ["r0/team"]\n'
        more = '[components.calc]\noci = "team:calc@1.0"\n'
        user.write(registry.host, trust=table.replace("r0", registry.host) + more)
        [pulled] = user.ok("pull")
        assert (pulled["digest"], pulled["kind"]) == (digest, "component")
        assert Path(pulled["path"]).read_bytes() == file.read_bytes()
        pinned = f"oci://{registry.host}/team/calc@{digest}"
    ours = f"{sys.executable} -m portico"
    config = f"--config {user.config}"
    for server, tool in (
        (f"{ours} run {pinned} {config}", "add"),
        (f"{ours} run calc {config}", "add"),
        (f"{ours} serve --alone --expose all {config}", "calc__add"),
    ):
        command = [sys.executable, "-m", "portico", "call", server, tool, '{"a": 40, "b": 2}']
        done = run(command, user.env)
        assert done.returncode == 0, done.stderr
        assert "42" in done.stdout


def called(user: Home, tool: str, arguments: str) -> str:
    server = f"{sys.executable} -m portico run calc --config {user.config}"
    done = run([sys.executable, "-m", "portico", "call", server, tool, arguments], user.env)
    return done.stdout + done.stderr


SIDECAR = """
[functions.add]
title = "Sum"
description = "Adds two numbers."
parameters = { a = "The first." }

[functions.sleep]
name = "wait"
"""
CALC = '[trust]\nunsigned = ["*"]\n[components.calc]\noci = "team:calc@1.0"\n'


def described(user: Home) -> dict[str, Any]:
    """Return the tools of the configured component by name."""
    done = user.portico("inspect", "calc", "--json")
    assert done.returncode == 0, done.stderr
    return {tool["name"]: tool for tool in json.loads(done.stdout)["tools"]}


def test_the_descriptions_beside_a_component_travel_with_it(tmp_path: Path) -> None:
    author, user = Home(tmp_path / "author"), Home(tmp_path / "user")
    file = written(SLEEPER, tmp_path, "calc")
    sidecar = tmp_path / "calc.wasm.toml"
    sidecar.write_text(SIDECAR)
    with docker_registry(tmp_path / "registry") as registry:
        author.write(registry.host).ok("push", file, "team:calc@1.0")
        [pulled] = user.write(registry.host, trust=CALC).ok("pull")
        # The same file without descriptions has another manifest.
        sidecar.unlink()
        author.ok("push", file, "team:calc@2.0")
        user.write(registry.host, trust=CALC.replace("1.0", "2.0")).ok("pull")
        assert "description" not in described(user)["add"]
        user.write(registry.host, trust=CALC)
    tools = described(user)
    assert tools["add"]["description"] == "Adds two numbers."
    assert tools["add"]["title"] == "Sum"
    assert tools["add"]["inputSchema"]["properties"]["a"]["description"] == "The first."
    assert "wait" in tools
    # Nothing in the cache is believed unless it is what the manifest says.
    Path(f"{pulled['path']}.toml").write_text("[functions.add]\nname = 'changed'\n")
    assert "changed" not in described(user)
    # The operator's words come before the author's.
    (user.folder / "calc.wasm.toml").write_text('[functions.add]\ndescription = "Mine."\n')
    tools = described(user)
    assert tools["add"]["description"] == "Mine."
    assert "sleep" in tools


def test_descriptions_that_are_wrong_are_refused_before_and_after(tmp_path: Path) -> None:
    author, user = Home(tmp_path / "author"), Home(tmp_path / "user")
    file = written(SLEEPER, tmp_path, "calc")
    sidecar = tmp_path / "calc.wasm.toml"
    with own_registry() as registry:
        author.write(registry.host)
        sidecar.write_text("[functions.add\n")
        assert "calc.wasm.toml is not TOML" in author.fails("push", file, "team:calc@1.0")
        sidecar.write_text(SIDECAR)
        twice = author.portico("push", "--annotation", f"{FUNCTIONS}=x", file, "team:calc@1.0")
        assert twice.returncode == 2
        assert "calc.wasm.toml has the descriptions; remove one of them" in twice.stderr
        sidecar.unlink()
        # Another client of registries writes what it likes.
        for text, why in (
            ("[functions.add", "calc.wasm.toml is not TOML"),
            ("a." * 20_000 + "a = 1", "has a line with more than 500 dots"),
            ("[functions.nobody]", "describes 'nobody', which the component does not offer"),
        ):
            author.ok("push", "--annotation", f"{FUNCTIONS}={text}", file, "team:calc@1.0")
            user.write(registry.host, trust=CALC).ok("pull", "team:calc@1.0", "--update")
            refused = user.portico("inspect", "calc")
            assert refused.returncode == 1
            assert why in refused.stderr


def test_a_component_of_a_registry_has_the_grants_of_the_config(tmp_path: Path) -> None:
    author, user = Home(tmp_path / "author"), Home(tmp_path / "user")
    file = written(SLEEPER, tmp_path)
    trust = '[trust]\nunsigned = ["*"]\n[components.calc]\noci = "team:calc@1.0"\n'
    granted = '[components.calc.grants]\ntools = ["add", "sleep"]\ntime = "1s"\n'
    with own_registry() as registry:
        author.write(registry.host).ok("push", file, "team:calc@1.0")
        user.write(registry.host, trust=trust + granted).ok("pull")
        assert "42" in called(user, "add", '{"a": 40, "b": 2}')
        assert "has no tool 'divide'; it has sleep, add" in called(
            user, "divide", '{"a": 4, "b": 2}'
        )
        assert "waiting in a function of WASI" in called(user, "sleep", '{"ms": 600000}')
        shown = user.portico("inspect", "calc").stdout
        assert "granted   tools=add" in shown
        assert "granted   time=1s" in shown
        user.write(registry.host, trust=f'{trust}env = {{ A = "b" }}\n')
        assert "has no environment of its own" in called(user, "add", '{"a": 40, "b": 2}')
