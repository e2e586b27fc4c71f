"""`portico run --watch` in a real terminal, with a client and a call under way throughout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from portico.core.model.errors import PorticoError
from portico.library.components.project import Project
from portico.library.components.project_builds import ProjectBuilds, run_build
from tests.gateway.observed import portico
from tests.library.wasm.building import wat
from tests.support.running import WAIT_S, free_port
from tests.support.tmux import tmux
from tests.wrap.standing import until

SOURCE = '''
import asyncio
import pathlib

from portico import Server

server = Server("edited")
here = pathlib.Path(__file__).parent


@server.tool
async def slow() -> str:
    """Wait."""
    (here / "waiting").touch()
    while not (here / "go").exists():
        await asyncio.sleep(0.01)
    return "VERSION"


@server.tool
def version() -> str:
    """Name this version."""
    return "VERSION"
'''

FUNCTIONS = """(component
  (core module $m (func (export "f") (result i32) i32.const 1))
  (core instance $i (instantiate $m))
  (func $f (result s32) (canon lift (core func $i "f")))
  (export "shown-NUMBER" (func $f))
  (export "hidden" (func $f)))"""

HANGING = """
import pathlib, time
pathlib.Path(__file__).with_name("hanging").touch()
time.sleep(600)
"""


class Session:
    """A terminal with a watched component, and commands of another one."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}/mcp"

    def save(self, text: str) -> None:
        (self.folder / "edited.py").write_text(text)

    def version(self, tool: str = "version") -> str:
        return portico(self.folder, "call", self.url, tool).stdout.strip()

    def tools(self) -> list[str]:
        ran = portico(self.folder, "inspect", self.url, "--json")
        return [one["name"] for one in json.loads(ran.stdout)["tools"]]

    def begin(self, tool: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "portico", "call", self.url, tool],
            env={**os.environ, "PORTICO_HOME": str(self.folder / "home")},
            stdout=subprocess.PIPE,
            text=True,
        )


def test_edits_are_reloaded_in_a_terminal(tmp_path: Path) -> None:
    folder, port = tmp_path / "work", free_port()
    folder.mkdir()
    session = Session(folder, port)
    session.save(SOURCE.replace("VERSION", "first"))
    home = {"PORTICO_HOME": str(folder / "home")}
    with tmux(tmp_path, folder, home) as terminal:
        terminal.type(f"{sys.executable} -m portico run --watch edited.py --http {port}")
        until(lambda: session.version() == "first", "it does not serve")
        with session.begin("slow") as pending:
            # It waits until the test lets it go on, in the version in which it began.
            until((folder / "waiting").exists, "the call does not begin")

            session.save(SOURCE.replace("VERSION", "broken") + "\ndef f(:\n")
            shown = terminal.until("portico: edited.py changed, but was not reloaded")
            assert "edited.py:25: SyntaxError" in shown
            assert session.version() == "first"

            session.save(SOURCE.replace("VERSION", "second"))
            until(lambda: session.version() == "second", "the good edit is not served")

            session.save(SOURCE.replace("def version", "def renamed").replace("VERSION", "third"))
            until(lambda: session.tools() == ["renamed", "slow"], "the new name is not listed")
            assert session.version("renamed") == "third"

            for number in range(10):
                session.save(SOURCE.replace("VERSION", f"save {number}"))
            until(lambda: session.version() == "save 9", "the last save is not served")

            session.save(HANGING)
            until((folder / "hanging").exists, "the component is not loaded")
            assert session.version() == "save 9"
            session.save(SOURCE.replace("VERSION", "after it hung"))
            until(lambda: session.version() == "after it hung", "it hangs with its component")

            assert pending.poll() is None
            (folder / "go").touch()
            assert pending.communicate(timeout=WAIT_S)[0].strip() == "first"


async def test_a_build_that_fails_shows_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "app.txt").write_text("")
    script = "import sys; print('app.txt:3: no such thing'); sys.exit(7)"
    project = Project(
        folder=str(tmp_path),
        component="out.py",
        build=(sys.executable, "-c", script),
        sources=("*.txt",),
    )
    with pytest.raises(PorticoError, match=r"failed with code 7:\n  app.txt:3: no such thing"):
        await run_build(project)
    builds = ProjectBuilds({"one": project})
    assert builds.files() == [str(tmp_path / "app.txt")]
    await builds.build([str(tmp_path / "other.txt")])
    with pytest.raises(PorticoError, match="failed with code 7"):
        await builds.build([str(tmp_path / "app.txt")])
    assert not builds.is_building


BUILD = "import pathlib; pathlib.Path('made.py').write_text(pathlib.Path('app.txt').read_text())"


def built_project(folder: Path) -> None:
    folder.mkdir()
    (folder / "app.txt").write_text(SOURCE.replace("VERSION", "first"))
    build = json.dumps([sys.executable, "-c", BUILD])
    (folder / "component.toml").write_text(
        f'component = "made.py"\ninterface = "python@1"\nbuild = {build}\nsources = ["*.txt"]\n'
    )


def test_a_project_is_built_again_when_its_source_changes(tmp_path: Path) -> None:
    folder, port = tmp_path / "work", free_port()
    built_project(folder)
    session = Session(folder, port)
    command = [sys.executable, "-m", "portico", "run", "--watch", str(folder), "--http", str(port)]
    environ = {**os.environ, "PORTICO_HOME": str(folder / "home")}
    unbuilt = portico(folder, "run", str(folder))
    assert "made.py does not exist yet; run `" in unbuilt.stderr
    serving = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        until(lambda: session.version() == "first", "it is not built and served")
        (folder / "app.txt").write_text("def f(:")
        until(lambda: (folder / "made.py").read_text() == "def f(:", "it is not built again")
        assert session.version() == "first"
        (folder / "app.txt").write_text(SOURCE.replace("VERSION", "second"))
        until(lambda: session.version() == "second", "the new build is not served")
    finally:
        serving.terminate()
        serving.wait(WAIT_S)


def test_a_project_that_nobody_named_is_not_built(tmp_path: Path) -> None:
    folder, port = tmp_path / "work", free_port()
    built_project(folder)
    (folder / "made.py").write_text(SOURCE.replace("VERSION", "first"))
    session = Session(folder, port)
    assert portico(folder, "components", "add", "mine", str(folder / "made.py")).returncode == 0
    words = ["run", "--watch", "mine", "extra=" + str(folder / "second.py"), "--http", str(port)]
    (folder / "second.py").write_text("from portico import Server\nserver = Server('x')\n")
    environ = {**os.environ, "PORTICO_HOME": str(folder / "home")}
    log = (folder / "log").open("w+")
    serving = subprocess.Popen([sys.executable, "-m", "portico", *words], env=environ, stderr=log)
    try:
        until(lambda: session.version() == "first", "it is not served")
        (folder / "app.txt").write_text("changed")
        (folder / "second.py").write_text("from portico import Server\nserver = Server('y')\n")
        said = (folder / "log").read_text
        until(lambda: "second.py changed; reloaded" in said(), "nothing is watched")
        assert "building" not in said()
        assert "first" in (folder / "made.py").read_text()
    finally:
        serving.terminate()
        serving.wait(WAIT_S)
        log.close()


def test_a_name_of_the_config_builds_no_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.py").write_text(SOURCE)
    assert portico(tmp_path, "components", "add", "calc", f"{tmp_path}/server.py").returncode == 0
    assert portico(tmp_path, "profiles", "add", "dev", "calc").returncode == 0
    monkeypatch.chdir(tmp_path)
    for name in ("calc", "dev"):
        built_project(tmp_path / name)
        ran = portico(tmp_path, "run", "--watch", name)
        assert f"{name} is the" in ran.stderr
        assert "and not the project in this folder" in ran.stderr
        assert not (tmp_path / name / "made.py").exists()


def test_a_sandboxed_component_is_reloaded_with_its_grants(tmp_path: Path) -> None:
    folder, port = tmp_path / "work", free_port()
    folder.mkdir()
    session, file = Session(folder, port), folder / "some.wasm"

    def save(data: bytes) -> None:
        (folder / "draft").write_bytes(data)
        (folder / "draft").replace(file)

    save(wat(FUNCTIONS.replace("NUMBER", "one")))
    words = ["run", "--watch", f"a={file}", f"b={file}", "--prefix", "--http", str(port)]
    words += ["--grant", "a:tools=shown*", "--grant", "b:tools=shown*"]
    environ = {**os.environ, "PORTICO_HOME": str(folder / "home")}
    log = (folder / "log").open("w+")
    said = (folder / "log").read_text
    serving = subprocess.Popen([sys.executable, "-m", "portico", *words], env=environ, stderr=log)
    try:
        until(lambda: "serving" in said(), "it is not served")
        assert session.tools() == ["a__shown_one", "b__shown_one"]
        save(b"not a component")
        until(lambda: "some.wasm changed, but was not reloaded" in said(), "nothing is watched")
        save(wat(FUNCTIONS.replace("NUMBER", "two")))
        for name in ("a", "b"):
            until(lambda: f"{name} reloaded: its file has changed" in said(), "not reloaded")  # noqa: B023
        assert session.tools() == ["a__shown_two", "b__shown_two"]
    finally:
        serving.terminate()
        serving.wait(WAIT_S)
        log.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("component = 3", "component must be a text"),
        ("", "the component is missing; add component"),
        ('component = "../x.py"', "'../x.py' leads outside"),
        ('component = "x.py"\nsource = []', "there is no key 'source'; did you mean sources?"),
        ('component = "x.py"\nbuild = "make"', "build must be a list of texts"),
        ('component = "x.py"\ninterface = "python@9"', "made for python@9"),
        ("component =", "not valid TOML"),
    ],
)
def test_a_wrong_project_file_is_explained(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "component.toml").write_text(text)
    ran = portico(tmp_path, "run", str(tmp_path))
    assert ran.returncode == 1
    assert why in ran.stderr
    assert "component.toml" in ran.stderr
