"""Our HTTP connection uses uvicorn's internals: tests its version bounds and newest release."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from portico.client.connect import connect
from portico.wires.streamable_http import Url
from tests.support.running import http_server
from tests.support.shared import ROOT, unavailable

PROBE = """
from portico import Server

server = Server("probe", "1")


@server.tool
def which(pad: str = "") -> str:
    import uvicorn

    return uvicorn.__file__
"""
LARGE = "x" * 300_000


def allowed() -> Requirement:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(text) for text in project["dependencies"]]
    (uvicorn,) = [requirement for requirement in found if requirement.name == "uvicorn"]
    return uvicorn


def test_uvicorn_has_a_ceiling_and_the_tests_run_below_it() -> None:
    operators = {bound.operator for bound in allowed().specifier}
    assert operators == {">=", "<"}
    pinned = re.search(r"^uvicorn==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert allowed().specifier.contains(pinned[1])
    assert allowed().specifier.contains(version("uvicorn"))


@pytest.fixture
def newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of the newest release, which processes import from now on."""
    for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Without our version bounds, which apply only to Portico.
    argv = [*pip, "--target", str(folder), "uvicorn"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=240)
    if done.returncode:
        unavailable(f"the newest uvicorn cannot be installed:\n{done.stderr}")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return str(folder / "uvicorn" / "__init__.py")


@pytest.mark.slow
async def test_the_newest_uvicorn_serves_both_eras(newest: str, tmp_path: Path) -> None:
    component = tmp_path / "probe.py"
    component.write_text(PROBE)
    with http_server(component) as server:
        for era in ("modern", "legacy"):
            async with await connect(Url(server.url), era=era) as client:
                assert [tool["name"] for tool in await client.list_tools()] == ["which"]
                for pad in ("", "", LARGE):  # without ASGI, with a known head, and through ASGI
                    found = await client.call_tool("which", {"pad": pad})
                    assert found["content"] == [{"type": "text", "text": newest}]
        assert server.stop() == 0, server.stderr()
        assert "Traceback" not in server.stderr()
