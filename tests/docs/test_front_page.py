"""The front page is short, and every command on it runs."""

import asyncio
import http.client
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import portico
from tests.agents.delegation.qwen import qwen_table
from tests.docs.pages import ROOT, blocks, prose, text_of
from tests.library.wasm.building import WIT, javascript
from tests.support import node
from tests.support.model_server import model_server, says
from tests.support.running import WAIT_S, free_port
from tests.wrap.faults import until
from tools.package_page import page_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("front-page")]

MOST_LINES, MOST_WORDS = 200, 700
SHIMS = {
    # What these programs would download is installed already.
    "uvx": '[ "$1" = --version ] && echo uvx && exit\nexec "$@"',
    "npx": f"shift\nexec node {ROOT}/.tools/node_modules/$1/dist/index.js",
}
QWEN = ROOT / ".agents" / "node_modules" / ".bin"
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def _lines() -> Iterator[str]:
    """The commands whose output is not shown; `tests/docs/test_commands.py` runs the others."""
    for block in blocks("README.md"):
        if not block.language:
            yield from block.text.splitlines()


class Reader:
    """Somebody who reads the page and types what it shows, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = folder / "home" / "config" / "portico.toml"
        for block in blocks("README.md"):
            block.save(folder)
        programs = folder / "programs"
        programs.mkdir()
        for name, script in SHIMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        places = [programs, Path(sys.executable).parent, QWEN, node.node().parent]
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "PORTICO_HOME": str(folder / "home"),
            "LINEAR_API_KEY": "none",
            "PATH": os.pathsep.join([*map(str, places), os.environ["PATH"]]),
        }

    def type(self, line: str) -> str:
        """Run a line to its end, or until it serves; what it prints."""
        if " --http 8000" in line:
            return self._serve(shlex.split(line, comments=True))
        with self._started(["sh", "-c", line]) as running:
            said, wrong = running.communicate(timeout=2 * WAIT_S)
        if line.startswith("portico doctor"):
            assert [
                one for one in said.splitlines() if one.startswith("  ") and "remedy" not in one
            ]
            assert re.findall(r"^  (\w+)", said, re.MULTILINE)[::2] == ["linear"], said
        else:
            assert running.returncode == 0, f"{line}\n{said}{wrong}"
        return said

    def _serve(self, words: list[str]) -> str:
        port = free_port()
        words[words.index("--http") + 1] = str(port)
        with self._started(words) as running:
            try:
                assert until(lambda: running.poll() is not None or _is_ready(port)), words
                assert running.poll() is None, running.communicate()
            finally:
                running.terminate()
        return ""

    def _started(self, words: list[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            words,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    with closing(connection), suppress(OSError):
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    return False


def test_the_front_page_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= MOST_LINES
    text = re.sub(r"^\|.*$", "", prose("README.md"), flags=re.MULTILINE)
    assert len(text.split()) <= MOST_WORDS


def test_every_figure_of_the_front_page_says_what_it_is_compared_with() -> None:
    _, rule, *rows = [line for line in text_of("README.md").splitlines() if line[:1] == "|"]
    assert rule.startswith("| --")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert len(cells) >= 5
    assert [row for row in cells if len(row) != 4 or not all(row)] == []


def test_its_commands_run_one_after_the_other(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    shutil.copy(javascript("notes.js", WIT / "notes", "notes"), tmp_path / "notes.wasm")
    (tmp_path / "notes").mkdir()
    printed = {line.split("  ")[0]: reader.type(line) for line in _lines() if not _is_apart(line)}
    assert "time__get_current_time" in printed['portico search "what time is it in Tokyo"']
    assert printed["""portico call weather.py add '{"a": 2}'"""] == "3\n"
    assert len(printed) > 12


async def test_its_agent_gets_the_task_of_the_page(tmp_path: Path) -> None:
    (line,) = [line for line in _lines() if line.startswith("portico delegate")]
    (table,) = [block.text for block in blocks("README.md") if block.language == "toml"]
    async with model_server({"commit": [says("It is ", "fine.")]}) as model:
        reader = Reader(tmp_path)
        env = qwen_table(tmp_path, model)["env"]
        pairs = ", ".join(f'{name} = "{value}"' for name, value in env.items())
        reader.config.parent.mkdir(parents=True)
        reader.config.write_text(f"{table}env = {{ {pairs} }}\n")
        assert "It is fine." in await asyncio.to_thread(reader.type, line)


def test_its_first_line_leaves_the_command_on_the_path(tmp_path: Path) -> None:
    (line,) = [line for line in _lines() if line.startswith("pipx ")]
    assert _lines().__next__() == line
    subprocess.run([*PIP, "--target", str(tmp_path / "pipx"), "pipx"], check=True)
    place = tmp_path / "bin"
    own = {"PYTHONPATH": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(place)}
    environment = {**os.environ, **own, "PIPX_HOME": str(tmp_path / "home")}
    install = [sys.executable, "-m", *shlex.split(line)]
    subprocess.run(install, cwd=ROOT, env=environment, check=True, capture_output=True)
    version = subprocess.run(
        [str(place / "portico"), "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout == f"portico {portico.__version__}\n"
    (about,) = (tmp_path / "home").glob("venvs/portico/lib/*/site-packages/portico-*/METADATA")
    page = about.read_text()
    assert "\n# Portico\n" in page
    assert _links_within(page) == []


def test_each_link_of_the_front_page_leads_somewhere_on_a_package_index() -> None:
    readme = text_of("README.md")
    page = page_of(readme, "https://example.org/portico")
    assert _links_within(page) == []
    for link in _links_within(readme):
        kind = "raw" if link.endswith(".svg") else "blob"
        assert f"](https://example.org/portico/{kind}/HEAD/{link})" in page


def _links_within(page: str) -> list[str]:
    """The links of a page to other files of the project."""
    return re.findall(r"\]\((?!https?://|#)([^)]*)\)", page)


def _is_apart(line: str) -> bool:
    """True for the commands that have a test of their own."""
    return line.startswith(("pipx ", "portico delegate "))
