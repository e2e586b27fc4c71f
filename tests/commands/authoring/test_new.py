"""`portico new`: every project is created, tested, run, composed, and run from its bundle."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from portico.commands.authoring.scaffold import KINDS
from tests.library.wasm.building import CACHE
from tests.support import node
from tests.support.running import WAIT_S

BEHIND = '''
from portico import Server

server = Server("behind")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text
'''


LOOPBACK = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "-"]


@cache
def offline() -> Sequence[str]:
    """Return the words before a command that leave it no network but loopback; none if we may not
    make such a network here."""
    try:
        tried = subprocess.run([*LOOPBACK, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return ()
    return () if tried.returncode or tried.stderr else LOOPBACK


def portico(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, without a network."""
    return subprocess.run(
        [*offline(), sys.executable, "-m", "portico", *words],
        env={**os.environ, "PORTICO_HOME": str(folder / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
        check=False,
    )


def done(folder: Path, *words: str | Path, code: int = 0) -> str:
    ran = portico(folder, *map(str, words))
    assert ran.returncode == code, ran.stderr + ran.stdout
    return ran.stdout + ran.stderr


def in_project(project: Path, *command: str) -> str:
    ran = subprocess.run(
        [*offline(), *command],
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
    slowly = ("--timeout", str(4 * WAIT_S))  # it may be compiled first
    if kind == "tools":
        ran = portico(folder, "call", *slowly, str(target), "welcome", '{"name": "Ada"}')
        assert ran.stdout.strip() == "Welcome, Ada!", ran.stderr
        return
    (folder / "behind.py").write_text(BEHIND)
    if kind == "middleware":
        chain = f"{sys.executable} -m portico run {target} {folder}/behind.py"
        ran = portico(folder, "call", *slowly, chain, "echo", '{"text": "hi"}')
        assert ran.stdout.strip() == "hi", ran.stderr
        said = done(folder, "call", *slowly, chain, "echo", '{"text": "PRIVATE KEY"}', code=1)
        assert "private keys stay on this machine" in said
        return
    server = f"{sys.executable} -m portico run {target}"
    found = json.loads(portico(folder, "inspect", server, *slowly, "--json").stdout)
    if kind == "prompts":
        assert [one["name"] for one in found["prompts"]] == ["introduction"]
    else:
        assert [one["uri"] for one in found["resources"]] == ["hello-it://all"]
        [template] = found["resourceTemplates"]
        assert template["uriTemplate"] == "hello-it://people/{name}"


def lasts(folder: Path, kind: str) -> dict[str, Any]:
    """Compose a project, and use it from the bundle, without its folder."""
    project, bundle = folder / "hello-it", folder / "made.portico"
    done(folder, "compose", project, "-o", bundle)
    found: dict[str, Any] = json.loads(done(folder, "inspect", bundle, "--verify", "--json"))
    assert found["verified"]
    project.rename(folder / "gone")
    works(folder, bundle, kind)
    return found


def test_the_network_of_these_tests_is_loopback_alone(tmp_path: Path) -> None:
    command = [*offline(), "cat", "/proc/net/dev"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    names = [line.partition(":")[0].strip() for line in listed.stdout.splitlines()[2:]]
    assert "lo" in names
    assert names == ["lo"] or not offline()


@pytest.mark.parametrize("kind", KINDS)
def test_a_python_project_runs_passes_its_test_and_lasts(tmp_path: Path, kind: str) -> None:
    project = tmp_path / "hello-it"
    said = done(tmp_path, "new", "hello-it", "--lang", "python", "--kind", kind, "-o", project)
    assert "portico run --watch" in said
    assert "OK" in in_project(project, sys.executable, "-m", "unittest")
    assert 'interface = "python@1"' in (project / "component.toml").read_text()
    readme = (project / "README.md").read_text()
    assert "python@1" in readme
    commands = [line for line in readme.splitlines() if "  # " in line]
    assert len({line.index("  # ") for line in commands if not line.startswith("#")}) == 1
    works(tmp_path, project, kind)
    lasts(tmp_path, kind)


def with_tools() -> dict[str, str]:
    """The variables with which compilers and Node are found."""
    here = (str(node.node().parent), str(Path(sys.executable).parent))
    return {**os.environ, "PATH": os.pathsep.join((*here, os.environ["PATH"]))}


def build(project: Path) -> None:
    """Run the build that `component.toml` names; the same sources are built once."""
    about = tomllib.loads((project / "component.toml").read_text())
    sources = sorted(one for one in project.rglob("*") if one.is_file())
    texts = [f"{one.relative_to(project)}\n{one.read_text()}" for one in sources]
    key = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    kept = CACHE / f"new-{key[:24]}.wasm"
    CACHE.mkdir(exist_ok=True)
    if not kept.exists():
        (project / "node_modules").symlink_to(node.jco().parents[3])
        ran = subprocess.run(
            [*offline(), *about["build"]],
            cwd=project,
            env=with_tools(),
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0, (ran.stdout + ran.stderr).decode()
        (project / "node_modules").unlink()
        draft = kept.with_suffix(f".{os.getpid()}")
        shutil.copy(project / about["component"], draft)
        draft.rename(kept)
    shutil.copy(kept, project / about["component"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lang", ["js", "python-wasm"])
def test_a_compiled_project_builds_passes_its_test_and_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lang: str, kind: str
) -> None:
    monkeypatch.setenv("PATH", with_tools()["PATH"])
    project = tmp_path / "hello-it"
    said = done(tmp_path, "new", "hello-it", "--lang", lang, "--kind", kind, "-o", project)
    assert 'interface = "portico:mcp@0.1.0"' in (project / "component.toml").read_text()
    assert ("first run `npm install` in" in said) == (lang == "js")
    unbuilt = done(tmp_path, "run", project, code=1)
    assert "hello-it.wasm does not exist yet; run `" in unbuilt
    build(project)
    test = ("npm", "test") if lang == "js" else (sys.executable, "-m", "unittest")
    said = in_project(project, *test)
    assert "OK" in said or "# pass 1" in said
    works(tmp_path, project, kind)
    found = lasts(tmp_path, kind)
    assert found["components"][0]["interface"] == "portico:mcp@0.1.0"
    assert "wishes" not in found, "a sandboxed component needs nothing"


@pytest.mark.parametrize(
    ("lang", "missing"), [("js", "node and npm"), ("python-wasm", "componentize-py")]
)
def test_what_a_language_needs_is_named_before_anything_is_written(
    tmp_path: Path, lang: str, missing: str
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    script = (
        "import sys; sys.executable = sys.argv[1]; from portico.commands.cli.main import main; "
        "sys.exit(main(sys.argv[2:]))"
    )
    made = tmp_path / "made"
    ran = subprocess.run(
        [sys.executable, "-c", script, python, "new", "hi", "--lang", lang, "-o", made],
        env={**os.environ, "PATH": str(tmp_path), "PORTICO_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert f"--lang {lang} needs {missing}, which is not found; " in ran.stderr
    assert not made.exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["new", "json"], "json is a module that exists already; choose another"),
        (["new", "a b"], "'a b' is not a valid name; try a-b"),
        (["new", "3d"], "3d cannot be the name of a module; begin it with a letter"),
        (["new", "x1", "--version", "9"], "python@9 is not known; this Portico knows python@1"),
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
