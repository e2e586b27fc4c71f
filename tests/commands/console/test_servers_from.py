"""`portico servers add --from`: shown first, added after a yes, and nothing run before."""

import hashlib
import json
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from portico.commands.cli.main import main
from tests.commands.cli.test_call_terminal import at_terminal
from tests.support.node import mcpb, run_node

SERVER = """
import json, os, sys
open("started", "w").close()
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        info = {"name": " ".join(sys.argv[1:]), "version": os.environ["UNIT"]}
        result = about | {"serverInfo": info}
    elif asked.get("method") == "tools/list":
        result = {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]}
    elif "id" in asked:
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
MANIFEST: dict[str, Any] = {
    "manifest_version": "0.3",
    "name": "demo",
    "version": "1.0.0",
    "description": "A demo.",
    "author": {"name": "Ada"},
    "server": {
        "type": "python",
        "entry_point": "server/main.py",
        "mcp_config": {
            "command": "python3",
            "args": ["${__dirname}/server/main.py", "${user_config.roots}"],
            "env": {"UNIT": "${user_config.unit}", "KEY": "${user_config.key}"},
        },
    },
    "user_config": {
        "roots": {
            "type": "directory",
            "title": "Roots",
            "description": "Folders to serve.",
            "multiple": True,
            "required": True,
        },
        "unit": {"type": "string", "title": "Unit", "description": "u", "default": "metric"},
        "key": {"type": "string", "title": "Key", "description": "k", "sensitive": True},
    },
}
NPM = {"registryType": "npm", "identifier": "weather", "version": "1.2.3"}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default config of a home that is the test's own; not there yet."""
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "config" / "portico.toml"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle as its official packer makes it."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "in" / "server").mkdir(parents=True)
    (folder / "in" / "server" / "main.py").write_text(SERVER)
    (folder / "in" / "manifest.json").write_text(json.dumps(MANIFEST))
    file = folder / "demo.mcpb"
    done = run_node(mcpb(), "pack", str(folder / "in"), str(file), timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return file


def described(folder: Path, **more: Any) -> str:
    file = folder / "server.json"
    file.write_text(json.dumps({"name": "com.acme/weather", "version": "1.2.3", **more}))
    return str(file)


def entries(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(config.read_text())["servers"]
    return found


def test_a_packed_bundle_is_shown_unpacked_and_works(
    config: Path, bundle: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--set", "roots=/a", "--set", "roots=/b", "--set", "key=s3cret"]
    assert main(["servers", "add", "demo", "--from", str(bundle), *given, "--yes"]) == 0
    shown = capfd.readouterr()
    entry = entries(config)["demo"]
    folder = Path(entry["cwd"])
    assert entry["args"] == [f"{folder}/server/main.py", "/a", "/b"]
    assert entry["env"] == {"UNIT": "metric", "KEY": "${DEMO_KEY}"}
    assert f"command:     python3 {folder}/server/main.py /a /b\n" in shown.err
    assert "environment: UNIT, KEY = ${DEMO_KEY}\n" in shown.err
    assert f"folder:      {folder}\n" in shown.err
    assert "DEMO_KEY is not set in this shell" in shown.err
    assert "s3cret" not in shown.err + config.read_text()
    assert not (folder / "started").exists()
    monkeypatch.setenv("DEMO_KEY", "s3cret")
    assert main(["servers", "test", "demo"]) == 0
    assert "/a /b metric" in capfd.readouterr().out
    assert main(["servers", "remove", "demo"]) == 0
    assert f"the files of its bundle remain in {folder}" in capfd.readouterr().err


def test_at_a_terminal_settings_are_asked_for_and_no_adds_nothing(
    config: Path, bundle: Path
) -> None:
    with at_terminal("servers", "add", "demo", "--from", str(bundle)) as terminal:
        terminal.answer("roots (string): Roots (several: :)\n  > ", "/a:/b")
        terminal.answer("unit (string, optional): Unit (default metric)\n  > ", "")
        terminal.answer("Send this?", "y")
        terminal.until("/server/main.py /a /b")
        terminal.answer("Add it? [y/N] ", "")
        assert terminal.end() == 1
    assert "nothing was added" in terminal.screen
    assert not config.exists()
    assert not (config.parent.parent / "state" / "bundles").exists()


def test_at_a_terminal_yes_adds_it(config: Path, tmp_path: Path) -> None:
    source = described(tmp_path, packages=[NPM])
    with at_terminal("servers", "add", "weather", "--from", source) as terminal:
        terminal.until("command:     npx -y weather@1.2.3\n")
        terminal.until("folder:      the folder of each window\n")
        terminal.answer("Add it? [y/N] ", "y")
        assert terminal.end() == 0
    assert entries(config) == {"weather": {"command": "npx", "args": ["-y", "weather@1.2.3"]}}


def test_without_a_terminal_and_yes_nothing_is_added(
    config: Path, bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["servers", "add", "x", "--from", described(tmp_path, packages=[NPM])]) == 1
    assert "command:     npx -y weather@1.2.3\n" in (said := capfd.readouterr().err)
    assert "there is no terminal to confirm at; add --yes" in said
    assert main(["servers", "add", "x", "--from", str(bundle), "--yes"]) == 1
    assert "it needs values; add --set roots=VALUE" in capfd.readouterr().err
    assert not config.exists()


def test_one_of_several_packages_is_picked(
    config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    remote = {"type": "sse", "url": "https://acme.test/sse"}
    source = described(tmp_path, packages=[NPM], remotes=[remote])
    assert main(["servers", "add", "one", "--from", source, "--yes"]) == 0
    assert "is available as npm, remote; --use picks another" in capfd.readouterr().err
    assert main(["servers", "add", "two", "--from", source, "--use", "remote", "--yes"]) == 0
    assert entries(config)["two"] == {"url": "https://acme.test/sse", "type": "sse"}
    assert main(["servers", "add", "three", "--from", source, "--use", "oci", "--yes"]) == 1
    assert "not available as oci; use one of npm, remote" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["../x", "--from", "s.json"], "is not a valid server name"),
        (["there", "--from", "s.json"], "server there already exists"),
        (["x", "--from", "s.json", "--set", "colour=red"], "there is no setting 'colour'"),
        (["x", "--from", "nowhere.json"], "nowhere.json: cannot be read: No such file"),
        (["x", "--from", "broken.json"], "broken.json: not valid JSON"),
        (
            ["x", "--from", "http://acme.test/server.json"],
            "others could change what acme.test sends on its way",
        ),
        (["x", "--from", "s.json", "--", "npx"], "--from takes a NAME"),
        (["x", "--yes", "npx"], "--yes works only with --from"),
    ],
)
def test_a_mistake_is_explained_and_changes_nothing(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(described(tmp_path, packages=[NPM])).rename(tmp_path / "s.json")
    (tmp_path / "broken.json").write_text("{")
    config.parent.mkdir(parents=True)
    config.write_text('[servers.there]\ncommand = "x"\n')
    more = [] if "--yes" in words or "--" in words else ["--yes"]
    assert main(["servers", "add", *words, *more]) in (1, 2)
    assert said in capfd.readouterr().err
    assert config.read_text() == '[servers.there]\ncommand = "x"\n'


@pytest.fixture
def site(bundle: Path) -> Iterator[str]:
    """A registry on this machine, whose files are behind a redirect."""
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = f"http://{self.headers['host']}"
            if self.path in ("/right", "/wrong"):
                sha256 = digest if self.path == "/right" else "0" * 64
                package = {"registryType": "mcpb", "identifier": f"{url}/file"}
                packages = [{**package, "fileSha256": sha256}]
                self._answer(200, json.dumps({"name": "com.acme/demo", "packages": packages}))
            elif self.path == "/file":
                self._answer(302, "", ("location", "/real.mcpb"))
            elif self.path == "/away":
                self._answer(302, "", ("location", "http://acme.test/x"))
            elif self.path == "/real.mcpb":
                self._answer(200, bundle.read_bytes())
            else:
                self._answer(404, "")

        def _answer(self, status: int, body: str | bytes, *headers: tuple[str, str]) -> None:
            data = body.encode() if isinstance(body, str) else body
            self.send_response(status)
            for name, value in (*headers, ("content-length", str(len(data)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_description_and_its_bundle_are_downloaded_and_compared(
    config: Path, site: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def add(path: str) -> int:
        given = ["--from", f"{site}/{path}", "--set", "roots=/a", "--yes"]
        return main(["servers", "add", "demo", *given])

    for path, said in (
        ("wrong", "is not the file that it names (SHA-256 differs)"),
        ("nowhere", "it returned HTTP 404"),
        ("away", "others could change what acme.test sends on its way; use https"),
    ):
        assert add(path) == 1
        assert said in capfd.readouterr().err
    assert not config.exists()
    assert add("right") == 0
    assert Path(entries(config)["demo"]["args"][0]).read_text() == SERVER
