"""Components with packages of their own: a configured Python, or a script header through uv."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from venv import EnvBuilder

import pytest
import uv

from portico.library.components.classify import ComponentError
from portico.library.components.file_python import (
    ScriptHeader,
    command_of,
    header_of,
    missing_module,
)
from tests.support.running import WAIT_S

_TOOL = '''
import greeting
from portico import Server

server = Server("greeter")


@server.tool
def greet(name: str) -> str:
    """Greet somebody."""
    return greeting.word + " " + name
'''
_METADATA = "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_INFO = "greeting-1.0.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package that is nowhere installed."""
    path = tmp_path_factory.mktemp("wheel") / "greeting-1.0-py3-none-any.whl"
    files = {
        "greeting.py": 'word = "hello"\n',
        f"{_INFO}/METADATA": _METADATA,
        f"{_INFO}/WHEEL": _WHEEL,
        f"{_INFO}/RECORD": f"greeting.py,,\n{_INFO}/METADATA,,\n{_INFO}/WHEEL,,\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def with_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real uv is on the path, with a cache of its own and no network."""
    folder = os.path.dirname(uv.find_uv_bin())
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")


def with_header(folder: Path, wheel: Path, more: str = "") -> Path:
    """A file that lists the package in its header."""
    path = folder / "greeter.py"
    needs = f'# dependencies = ["greeting @ {wheel.as_uri()}"]\n'
    path.write_text(f"# /// script\n{more}{needs}# ///\n{_TOOL}")
    return path


def portico(home: Path, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "portico", *words],
        env={**os.environ, "PORTICO_HOME": str(home / "home")},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )


def configured(folder: Path, path: Path, more: str = "") -> Path:
    config = folder / "portico.toml"
    config.write_text(f"[components.greeter]\npath = {json.dumps(str(path))}\n{more}")
    return config


GREET = ('{"name": "Ada"}',)


@pytest.mark.slow
def test_uv_makes_the_environment_of_a_script_header(
    tmp_path: Path, wheel: Path, with_uv: None
) -> None:
    path = with_header(tmp_path, wheel, '# requires-python = ">=3.11"\n')
    ran = portico(tmp_path, "call", str(path), "greet", *GREET)
    assert (ran.returncode, ran.stdout) == (0, "hello Ada\n"), ran.stderr
    config = configured(tmp_path, path)
    ran = portico(tmp_path, "call", "--config", str(config), "greeter__greet", *GREET)
    assert (ran.returncode, ran.stdout) == (0, "hello Ada\n"), ran.stderr


@pytest.mark.slow
def test_run_serves_a_file_in_its_environment(tmp_path: Path, wheel: Path, with_uv: None) -> None:
    path = with_header(tmp_path, wheel)
    command = f"{sys.executable} -m portico run {path}"
    ran = portico(tmp_path, "call", command, "greet", *GREET)
    assert (ran.returncode, ran.stdout) == (0, "hello Ada\n"), ran.stderr


@pytest.mark.slow
def test_a_configured_python_has_packages_of_its_own(tmp_path: Path, wheel: Path) -> None:
    """Portico is not installed there, and is added."""
    venv = tmp_path / "venv"
    EnvBuilder(symlinks=True).create(venv)
    (packages,) = venv.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract("greeting.py", packages)
    path = tmp_path / "greeter.py"
    path.write_text(_TOOL)
    config = configured(tmp_path, path, 'python = "venv/bin/python"\n')
    ran = portico(tmp_path, "call", "--config", str(config), "greeter__greet", *GREET)
    assert (ran.returncode, ran.stdout) == (0, "hello Ada\n"), ran.stderr


@pytest.mark.slow
def test_without_uv_the_hint_names_it(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    path = with_header(tmp_path, wheel)
    ran = portico(tmp_path, "call", str(path), "greet", *GREET)
    assert ran.returncode == 1
    assert "cannot import greeting: no such module; install uv (https" in ran.stderr


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('python = "/no/such/python"', "/no/such/python: is not a program"),
        ('python = "greeter.py"', "greeter.py: is not a program"),
        ('python = "venv/bin/python"\nin_process = true', ".python: has no effect with in_process"),
        ("python = 7", "python"),
    ],
)
def test_a_python_that_cannot_run_is_a_problem_of_the_config(
    tmp_path: Path, line: str, why: str
) -> None:
    path = tmp_path / "greeter.py"
    path.write_text(_TOOL)
    ran = portico(tmp_path, "doctor", "--config", str(configured(tmp_path, path, f"{line}\n")))
    assert why in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("print()\n", ScriptHeader()),
        ("# /// script\n# dependencies = []\n# ///\n", ScriptHeader()),
        (
            '# /// script\n# requires-python = ">=3.12"\n# dependencies = ["a", "b>1"]\n# ///\n',
            ScriptHeader(("a", "b>1"), ">=3.12"),
        ),
        ('# /// pyproject\n# dependencies = ["a"]\n# ///\n', ScriptHeader()),
        ('x = """\n /// script\n"""\n', ScriptHeader()),
    ],
)
def test_a_header_is_read_as_the_standard_says(
    tmp_path: Path, text: str, found: ScriptHeader
) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    assert header_of(str(path)) == header_of(f"{path}:server") == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# /// script\n# dependencies = [\n# ///\n", "its script header is not TOML"),
        ("# /// script\n# dependencies = 7\n# ///\n", "dependencies must be a list of strings"),
        ("# /// script\n# a = 1\n# ///\n\n# /// script\n# b = 1\n# ///\n", "has 2 script headers"),
    ],
)
def test_a_broken_header_is_explained(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "a.py"
    path.write_text(text)
    with pytest.raises(ComponentError, match=why):
        command_of(str(path))


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("pipx_metadata.json", "run `pipx inject portico numpy`"),
        ("uv-receipt.toml", "run `uv tool install portico --with numpy`"),
        ("", "install it for "),
    ],
)
def test_a_missing_module_is_installed_as_portico_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, how: str
) -> None:
    if file:
        (tmp_path / file).write_text("")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert missing_module("numpy.linalg", str(tmp_path / "a.py")).startswith(how)
