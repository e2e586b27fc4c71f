"""A component of WebAssembly: signed, pushed, pulled, and run again by its digest."""

import sys
from pathlib import Path

import pytest

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
