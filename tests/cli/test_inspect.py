"""`portico inspect`: what a server says of itself, on one page."""

import shlex
from pathlib import Path

import msgspec
import pytest

from portico.cli.main import main
from tests.upstream.fakes import bad_server

SERVER = '''
from portico import Server

server = Server("demo", version="1.0", title="A demo", instructions="Be kind.\\nAlways.")


@server.tool
async def forecast(city: str, days: int = 3) -> str:
    """The weather to come.

    In detail.
    """
    return "sun"


@server.resource("note://hello", name="hello", mime_type="text/plain")
async def hello() -> str:
    """A note."""
    return "hello"


@server.prompt
async def describe(thing: str) -> str:
    """Describe a thing."""
    return f"Describe {thing}."
'''


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("demo") / "server.py"
    path.write_text(SERVER)
    return str(path)


def test_a_page_about_a_server(demo: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", demo]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0] == "demo 1.0 · A demo"
    assert lines[1] == "  protocol  2026-07-28 (modern) over stdio"
    assert lines[2].startswith("  offers    ")
    assert "tools (listChanged)" in lines[2]
    assert " ms to start, " in lines[3]
    assert "Instructions\n  Be kind.\n  Always.\n" in said.out
    assert "  forecast  city:string*, days:integer  The weather to come.\n" in said.out
    assert "\nResources (1)\n  note://hello  text/plain  A note.\n" in said.out
    assert "\nPrompts (1)\n  describe  thing*  Describe a thing.\n" in said.out


def test_the_same_for_programs(demo: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", demo, "--json", "--era", "legacy"]) == 0
    found = msgspec.json.decode(capfd.readouterr().out)
    assert found["server"]["name"] == "demo"
    assert (found["protocolVersion"], found["era"]) == ("2025-11-25", "legacy")
    assert [tool["name"] for tool in found["tools"]] == ["forecast"]
    weight = len(msgspec.json.encode(found["tools"][0]))
    assert (found["toolBytes"], found["toolTokens"]) == (weight, weight // 4)
    assert found["resources"][0]["uri"] == "note://hello"
    assert found["resourceTemplates"] == []
    assert found["instructions"] == "Be kind.\nAlways."
    assert found["startMs"] > 0


def test_a_server_of_the_legacy_era(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", shlex.join(bad_server("plain").argv)]) == 0
    out = capfd.readouterr().out
    assert out.startswith("plain 1\n  protocol  2025-11-25 (legacy) over stdio\n")
    assert "Tools (1: " in out


def test_a_server_that_does_not_start_is_quoted(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", shlex.join(bad_server("exits-at-once").argv)]) == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert "exited with code 2; its stderr ends with:\n  no API key\n" in said.err


def test_a_broken_component_is_quoted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.py"
    path.write_text("import no_such_module")
    assert main(["inspect", str(path)]) == 1
    assert "No module named 'no_such_module'" in capfd.readouterr().err
