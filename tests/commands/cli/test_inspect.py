"""`portico inspect`: what a server says of itself, on one page."""

import shlex
from pathlib import Path

import msgspec
import pytest

from portico.commands.cli.main import main
from tests.gateway.observed import portico, prepared
from tests.upstream.connections.fakes import bad_server

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
    assert "exited with code 2; last output:\n  no API key\n" in said.err


def test_a_broken_component_is_quoted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.py"
    path.write_text("import no_such_module")
    assert main(["inspect", str(path)]) == 1
    assert "No module named 'no_such_module'" in capfd.readouterr().err


# Components


RAN = "import pathlib\npathlib.Path(__file__ + '.ran').touch()\n"
LINK = f"{RAN}import helper\nimport no_such_thing\n\n\ndef link(next):\n    return next\n"
TOOLS = '[{"name": "forecast", "description": "Of a file.", "inputSchema": {"type": "object"}}]'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    (tmp_path / "log.py").write_text(LINK)
    (tmp_path / "helper.py").write_text("import msgspec\n")
    (tmp_path / "tools.json").write_text(TOOLS)
    (tmp_path / "server.py").write_text(RAN + SERVER)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_middleware_is_read_and_never_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "log.py"]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    assert said.out.startswith("log: middleware\n")
    assert "  imports   helper (beside it), no_such_thing (not found), msgspec\n" in said.out
    assert "  process   Portico's own, in " in said.out
    assert "  granted   all files and the network: it is not sandboxed\n" in said.out
    assert not Path("log.py.ran").exists()


@pytest.mark.usefixtures("folder")
def test_a_definitions_file_is_data(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "tools.json"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("tools: definitions\n")
    assert "Tools (1: " in out
    assert "  forecast  Of a file.\n" in out
    assert "  granted   nothing: it is data" in out


@pytest.mark.usefixtures("folder")
def test_a_config_is_not_a_definitions_file(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mcp.json").write_text('{"mcpServers": {"x": {"command": "y"}}}')
    assert main(["inspect", "mcp.json"]) == 1
    assert "mcp.json: a config of servers, not a component" in capfd.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_static_page_starts_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    Path("start.sh").write_text("#!/bin/sh\ntouch started\n")
    Path("start.sh").chmod(0o755)
    assert main(["inspect", "--static", "server.py", "log.py", "./start.sh"]) == 0
    out = capfd.readouterr().out
    assert "  offers    tool forecast, resource note://hello, prompt describe (in its text;" in out
    assert "  offers    unknown until it is started\n" in out
    assert not list(Path().glob("*ran"))
    assert not Path("started").exists()


@pytest.mark.usefixtures("folder")
def test_a_chain_is_shown_in_order_with_its_clashes(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "log.py", "sky=server.py", "tools.json"]) == 1
    out = capfd.readouterr().out
    assert out.startswith(
        "Chain\n"
        "  transport  stdio, or HTTP\n"
        "  log        middleware: log.py\n"
        "  sky        a Python server: server.py\n"
        "  tools      definitions: tools.json\n"
        "  terminus   "
    )
    assert "\nsky: demo 1.0 · A demo\n  protocol  " in out
    assert "  tool 'forecast' is offered by both 'sky' and 'tools'\n" in out
    assert Path("server.py.ran").exists()
    assert not Path("log.py.ran").exists()


@pytest.mark.usefixtures("folder")
def test_a_clash_in_the_text_of_files_is_found_without_starting_them(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["inspect", "--static", "server.py", "other=server.py"]) == 1
    out = capfd.readouterr().out
    assert "  tool 'forecast' is offered by both 'server' and 'other'\n" in out
    assert "  resource 'note://hello' is offered by both 'server' and 'other'\n" in out
    assert not Path("server.py.ran").exists()


@pytest.mark.usefixtures("folder")
def test_the_same_chain_for_programs(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "log.py", "server.py", "--json"]) == 0
    found = msgspec.json.decode(capfd.readouterr().out)
    assert found["chain"] == ["transport", "log", "server", "terminus"]
    log, server = found["components"]
    assert log["component"]["links"] == ["link"]
    assert [one["name"] for one in log["component"]["imports"]] == [
        "helper",
        "no_such_thing",
        "msgspec",
    ]
    assert "tools" not in log
    assert (log["component"]["started"], server["component"]["started"]) == (False, True)
    assert "PATH" in server["component"]["grants"]["variables"]
    assert server["component"]["grants"]["sandboxed"] is False
    assert server["server"]["name"] == "demo"
    assert found["clashes"] == []


@pytest.mark.usefixtures("folder")
def test_one_failing_component_does_not_hide_the_others(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("broken.py").write_text("def (:\n")
    bad = shlex.join(bad_server("exits-at-once").argv)
    assert main(["inspect", "broken.py", f"bad={bad} --token hunter2", "tools.json"]) == 1
    out = capfd.readouterr().out
    assert "  failed    broken.py:1: SyntaxError: " in out
    assert "last output:\n  no API key\n" in out
    assert "  forecast  Of a file.\n" in out
    assert "hunter2" not in out


@pytest.mark.usefixtures("folder")
def test_the_rights_of_a_command_name_its_variables(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "hunter2")
    argv = ["inspect", "--static", "sh x.sh", "--env", "ADDED=hunter2"]
    assert main(argv) == 0
    out = capfd.readouterr().out
    assert "  process   its own, in " in out
    assert "variables, with ADDED; possibly secret: " in out
    assert "ACME_API_KEY" in out
    assert "hunter2" not in out


@pytest.mark.usefixtures("folder")
def test_a_script_of_another_library_is_a_program_with_imports(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("fast.py").write_text("import mcp\nimport helper\nmcp.run()\n")
    assert main(["inspect", "--static", "fast.py"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("fast: a program\n")
    assert "  imports   mcp, helper (beside it), msgspec\n" in out


# The configured gateway


def test_without_a_component_the_gateway_is_shown_from_its_files(tmp_path: Path) -> None:
    more = '\n[servers.web]\nurl = "https://example.test/mcp"\nheaders = { X-Key = "hunter2" }\n'
    config = str(prepared(tmp_path, more))
    shown = portico(tmp_path, "inspect", "--config", config)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "0 catalogs on disk" in shown.stdout
    assert "  granted   the headers X-Key\n" in shown.stdout
    assert "hunter2" not in shown.stdout
    listed = portico(tmp_path, "search", "add two numbers", "--server", "maths", "--config", config)
    assert listed.returncode == 0, listed.stderr
    shown = portico(tmp_path, "inspect", "--config", config)
    assert "  maths      a program of the config: " in shown.stdout
    assert "\n  maths__add  a:integer*, b:integer  Add two numbers.\n" in shown.stdout
    found = msgspec.json.decode(portico(tmp_path, "inspect", "--json", "--config", config).stdout)
    assert found["chain"] == ["transport", "gateway", "maths", "web", "terminus"]
    assert [one["component"]["started"] for one in found["components"]] == [False, False]


def test_without_a_config_it_says_so(tmp_path: Path) -> None:
    shown = portico(tmp_path, "inspect")
    assert shown.returncode == 1
    assert "portico.toml: no such file" in shown.stderr


def test_links_and_components_of_the_gateway_are_read_and_never_run(folder: Path) -> None:
    Path("portico.toml").write_text(
        '[gateway]\nlinks = ["./log.py"]\n'
        '[components.sky]\npath = "server.py"\nenv = { SKY_KEY = "hunter2" }\n'
        '[components.mine]\npath = "server.py"\nin_process = true\n'
        '[components.data]\npath = "tools.json"\n'
        '[components.gone]\npath = "gone.py"\n'
    )
    shown = portico(folder, "inspect", "--config", "portico.toml")
    assert (shown.returncode, shown.stderr) == (0, "")
    parts = shown.stdout.split("\n\n")
    chain = [line.split()[0] for line in parts[0].splitlines()[1:]]
    assert chain == ["transport", "log", "gateway", "sky", "mine", "data", "gone", "terminus"]
    log, sky, mine, data = parts[1:5]
    assert "  imports   helper (beside it), no_such_thing (not found), msgspec" in log
    assert "  process   its own, in " in sky
    assert "SKY_KEY" in sky
    assert "  process   Portico's own, in " in mine
    assert "  offers    tool forecast, " in mine
    assert data.startswith("data: definitions\n")
    assert "  data__forecast  Of a file.\n" in shown.stdout
    assert "gone.py: No such file or directory" in shown.stdout
    assert "hunter2" not in shown.stdout
    assert not list(folder.glob("*.ran"))


def test_a_broken_link_of_the_gateway_is_reported(folder: Path) -> None:
    links = '["./gone.py", "./tools.json", "./broken.py"]'
    Path("broken.py").write_text("def (:\n")
    Path("portico.toml").write_text(f"[gateway]\nlinks = {links}\n")
    shown = portico(folder, "inspect", "--config", "portico.toml")
    assert shown.returncode == 1
    assert f"  failed    {folder}/gone.py: no such file\n" in shown.stdout
    assert (
        "tools.json: not middleware; give a Python file or a WebAssembly component\n"
        in shown.stdout
    )
    assert "broken.py:1: SyntaxError: " in shown.stdout


def test_an_alias_of_a_file_is_shown_as_that_file(folder: Path) -> None:
    Path("portico.toml").write_text(
        '[components.sky]\npath = "server.py"\n[components.data]\npath = "tools.json"\n'
    )
    shown = portico(folder, "inspect", "sky", "data", "--config", "portico.toml")
    assert shown.returncode == 1  # both offer a forecast
    assert f"  sky        a Python server of the config: {folder}/server.py\n" in shown.stdout
    assert f"  data       definitions of the config: {folder}/tools.json\n" in shown.stdout
    assert "tool 'forecast' is offered by both 'sky' and 'data'" in shown.stdout
