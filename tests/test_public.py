"""What users may rely on, and how little it takes to import."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import portico
import portico.search
from tests.support.shared import ROOT

NAMES = """
    Answer AskError Audio BlockingContext Change Connection Contents Context DefinitionError
    Elicited Embedded Endpoint Handler HttpLimits Image InvalidParams Link McpError
    MemoryClient Message MissingCapability NameClash NextCall Offer OnCall OnResult Only
    PorticoError ROOTS RegistrationError Request ResourceLink Response Server SessionError
    StartError Text Tool ToolError ToolRequest ToolResult Transport Version __version__ after
    elicitation hooks load_prompts load_resources load_templates load_tools parse_address run
    sampling serve serve_http serve_stdio serve_transport url_elicitation wrap
"""


def test_the_public_names_are_these() -> None:
    assert sorted(portico.__all__) == sorted(NAMES.split())
    for name in portico.__all__:
        assert getattr(portico, name) is not None
    assert set(dir(portico)) == set(portico.__all__)


MISSPELT = """
from portico import HttpLimits, Server

server = Server("x")
server.asgi(token="a", limits=HttpLimits(running=5), hosts=None, sse=False)
server.asgi(tokn="a")
server.asgi(hosts=[5])
"""


@pytest.mark.slow
def test_a_type_checker_finds_a_misspelt_option_of_an_asgi_app(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(MISSPELT)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "app.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line.partition(": ")[0] for line in done.stdout.splitlines() if ": error:" in line]
    assert errors == ["app.py:6", "app.py:7"], done.stdout


def test_search_exports_what_its_page_names() -> None:
    assert portico.search.__all__ == ["Hit", "Searcher", "ToolIndex"]
    for name in portico.search.__all__:
        assert getattr(portico.search, name).__name__ == name
    with pytest.raises(AttributeError, match="nonsense"):
        _ = portico.search.nonsense


def test_pages_and_examples_name_public_modules_only() -> None:
    examples = [path for kind in ("py", "md") for path in ROOT.glob(f"examples/**/*.{kind}")]
    pages = [*ROOT.glob("docs/[uw]*/*.md"), ROOT / "README.md", *examples]
    found = {
        module
        for page in pages
        for module in re.findall(
            r"^ *(?:from|import) (portico\.[\w.]+)", page.read_text(), re.MULTILINE
        )
    }
    assert found == {"portico.search"}


def test_any_other_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = portico.nonsense


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert portico.__version__ == version("portico")


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running this."""
    script = f"{code}\nimport sys; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ran.stdout.split())


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    assert {name for name in loaded_by("import portico") if name.startswith("portico.")} == set()


def test_a_server_needs_neither_the_validator_nor_http_to_start() -> None:
    heavy = {"jsonschema_rs", "uvicorn", "httptools", "uvloop", "rich", "argparse", "pathlib"}
    code = """
from portico import Server
import portico.edge.transport.pipes
Server("x").add_tool({"name": "x", "inputSchema": {"type": "object"}}, lambda arguments: "")
"""
    assert heavy & loaded_by(code) == set()


def test_a_gateway_loads_the_client_of_prometheus_only_to_show_its_metrics() -> None:
    serving = "import portico.gateway.app, portico.commands.cli.serve,"
    serving += " portico.gateway.serve.gateway_app, portico.edge.transport.http_app"
    assert "prometheus_client" not in loaded_by(serving)
    assert "prometheus_client" in loaded_by("import portico.library.observe.prometheus")
