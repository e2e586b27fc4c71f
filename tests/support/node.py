"""The tools of `make setup`, the programs of `make agents`, `make clients` and
`make wasm-tools`, and their use."""

import os
import subprocess
from pathlib import Path

from tests.support.shared import ROOT, unavailable

_TOOLS = ROOT / ".tools"
_AGENTS = ROOT / ".agents"
_CLIENTS = ROOT / ".clients" / "node_modules"
_SCOPE = _TOOLS / "node_modules" / "@modelcontextprotocol"


def node() -> Path:
    """Return the Node 22 binary; the system's Node may be too old for the tools."""
    return _present(_TOOLS / "bin" / "node")


def conformance() -> Path:
    """Return the conformance suite's script."""
    return _present(_SCOPE / "conformance" / "dist" / "index.js")


def inspector() -> Path:
    """Return the Inspector's launcher; give it `--cli` first."""
    return _present(_SCOPE / "inspector" / "clients" / "launcher" / "build" / "index.js")


def everything_server() -> Path:
    """Return the reference server's script; its argument is the transport, such as `stdio`."""
    return _present(_SCOPE / "server-everything" / "dist" / "index.js")


def server(name: str) -> Path:
    """Return the script of another reference server, such as `memory`."""
    return _present(_SCOPE / f"server-{name}" / "dist" / "index.js")


def mcpb() -> Path:
    """Return the script that packs .mcpb bundles."""
    return _present(_TOOLS / "node_modules" / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js")


def acp_schema(name: str) -> Path:
    """Return a JSON Schema of the Agent Client Protocol, such as `v1/schema.json`."""
    return _present(_TOOLS / "node_modules" / "@agentclientprotocol" / "sdk" / "schema" / name)


def qwen() -> Path:
    """Return the script of Qwen Code, a real agent."""
    return _present(_AGENTS / "node_modules" / "@qwen-code" / "qwen-code" / "cli.js", "agents")


def gemini() -> Path:
    """Return the script of Gemini CLI."""
    folder = _AGENTS / "node_modules" / "@google" / "gemini-cli"
    return _present(folder / "bundle" / "gemini.js", "agents")


def jco() -> Path:
    """Return the script that compiles JavaScript to WebAssembly components."""
    folder = ROOT / ".wasm-tools" / "node_modules" / "@bytecodealliance" / "jco"
    return _present(folder / "dist" / "jco.js", "wasm-tools")


def acp_adapter(name: str) -> Path:
    """Return the script of an adapter to ACP, such as `codex-acp`."""
    return _present(_CLIENTS / "@agentclientprotocol" / name / "dist" / "index.js", "clients")


def platform_binary(pattern: str) -> Path:
    """Return the program of a client in its platform's package, such as `opencode-*/bin/opencode`.

    Of several, the last: that for older processors.
    """
    found = sorted(_CLIENTS.glob(pattern))
    return found[-1] if found else _present(_CLIENTS / pattern, "clients")


def ts(name: str) -> Path:
    """Return tests/ts/NAME, beside the link through which its imports are found."""
    folder = ROOT / "tests" / "ts"
    _present(folder / "node_modules" / "@modelcontextprotocol")
    return folder / name


def environment(home: Path | None = None) -> dict[str, str]:
    """Return our environment with Node 22 first on PATH and, if given, HOME moved to a scratch."""
    env = {**os.environ, "PATH": f"{node().parent}{os.pathsep}{os.environ['PATH']}"}
    if home is not None:
        # The Inspector keeps its server list here and would otherwise read the developer's own.
        env |= {"HOME": str(home), "MCP_CATALOG_PATH": str(home / "mcp.json")}
    return env


def run_node(
    script: Path, *args: str, home: Path | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a script on Node 22 to its end; a coroutine test calls this in a thread."""
    return subprocess.run(
        [node(), script, *args],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _present(path: Path, target: str = "setup") -> Path:
    if not path.exists():
        unavailable(f"{path.relative_to(ROOT)} is not there: run `make {target}`")
    return path
