"""A component of WebAssembly: signed, pushed, pulled, and run again by its digest."""

import sys
from pathlib import Path

import pytest

from tests.distribution.own_registry import own_registry
from tests.distribution.rigs import Home, docker_registry, run
from tests.wasm.wat_guests import SLEEPER, written

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
