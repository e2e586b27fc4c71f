"""`portico new`: every project is created, tested, run, composed, and run from its bundle."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.observed import portico
from tests.support.running import WAIT_S

BEHIND = '''
from portico import Server

server = Server("behind")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text
'''


def done(folder: Path, *words: str | Path, code: int = 0) -> str:
    ran = portico(folder, *map(str, words))
    assert ran.returncode == code, ran.stderr + ran.stdout
    return ran.stdout + ran.stderr


def in_project(project: Path, *command: str) -> str:
    ran = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "PORTICO_HOME": str(project.parent / "home")},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def works(folder: Path, target: str | Path, kind: str) -> None:
    """Use what a project of this kind offers."""
    if kind == "tools":
        assert done(folder, "call", target, "welcome", '{"name": "Ada"}').strip() == "Welcome, Ada!"
        return
    (folder / "behind.py").write_text(BEHIND)
    if kind == "middleware":
        chain = f"{sys.executable} -m portico run {target} {folder}/behind.py"
        assert done(folder, "call", chain, "echo", '{"text": "hi"}').strip() == "hi"
        said = done(folder, "call", chain, "echo", '{"text": "PRIVATE KEY"}', code=1)
        assert "private keys stay on this machine" in said
        return
    server = f"{sys.executable} -m portico run {target}"
    found = json.loads(done(folder, "inspect", server, "--json"))
    if kind == "prompts":
        assert [one["name"] for one in found["prompts"]] == ["introduction"]
    else:
        assert [one["uri"] for one in found["resources"]] == ["hello-it://all"]
        [template] = found["resourceTemplates"]
        assert template["uriTemplate"] == "hello-it://people/{name}"


def lasts(folder: Path, kind: str) -> None:
    """Compose a project, and use it from the bundle, without its folder."""
    project, bundle = folder / "hello-it", folder / "made.portico"
    done(folder, "compose", project, "-o", bundle)
    assert '"verified":true' in done(folder, "inspect", bundle, "--verify", "--json").replace(
        " ", ""
    )
    project.rename(folder / "gone")
    works(folder, bundle, kind)


@pytest.mark.parametrize("kind", ["tools", "resources", "prompts", "middleware"])
def test_a_python_project_runs_passes_its_test_and_lasts(tmp_path: Path, kind: str) -> None:
    project = tmp_path / "hello-it"
    said = done(tmp_path, "new", "hello-it", "--lang", "python", "--kind", kind, "-o", project)
    assert "portico run --watch" in said
    assert "OK" in in_project(project, sys.executable, "-m", "unittest")
    assert 'interface = "python@1"' in (project / "component.toml").read_text()
    assert "python@1" in (project / "README.md").read_text()
    works(tmp_path, project, kind)
    lasts(tmp_path, kind)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["new", "json"], "json is a module that exists already; choose another"),
        (["new", "a b"], "'a b' is not a valid name; try a-b"),
        (["new", "3d"], "3d cannot be the name of a module; begin it with a letter"),
        (["new", "x1", "--version", "9"], "made for python@9, and this Portico knows python@1"),
        (["new", "x1", "-o", "FULL"], "the folder is not empty; give another with -o, or --force"),
        (["new", "x1", "-o", "FILE"], "a file; give another folder with -o"),
    ],
)
def test_a_project_that_cannot_be_made_is_explained(
    tmp_path: Path, words: list[str], why: str
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    names = {"FULL": str(full), "FILE": str(full / "mine.txt")}
    before = sorted(tmp_path.rglob("*"))
    assert why in done(tmp_path, *(names.get(one, one) for one in words), code=1)
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("x1").exists()


def test_force_writes_into_a_folder_and_keeps_other_files(tmp_path: Path) -> None:
    project = tmp_path / "x1"
    project.mkdir()
    (project / "mine.txt").write_text("mine")
    (project / "x1.py").write_text("old")
    done(tmp_path, "new", "x1", "-o", project, "--force")
    assert (project / "mine.txt").read_text() == "mine"
    assert "Server" in (project / "x1.py").read_text()
    assert not list(tmp_path.rglob("*draft*"))
