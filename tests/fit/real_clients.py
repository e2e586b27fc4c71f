"""Real MCP clients, each with one server and a scripted model on loopback."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents.delegation.qwen import QWEN_SETTINGS
from tests.support import node
from tests.support.model_server import ModelServer

RECORDER = Path(__file__).with_name("recorder.py")
WAIT_S = 240.0
"""How long a client may take for one prompt before it counts as a hang."""
SERVER = "portico"
_OURS = """
    ANTHROPIC_API_KEY ANTHROPIC_BASE_URL CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC
    COPILOT_AUTO_UPDATE COPILOT_MODEL COPILOT_OFFLINE COPILOT_PROVIDER_API_KEY
    COPILOT_PROVIDER_BASE_URL COPILOT_PROVIDER_WIRE_API ENABLE_TOOL_SEARCH GEMINI_API_KEY
    GEMINI_CLI_TRUST_WORKSPACE GOOGLE_GEMINI_BASE_URL HOME LANG NO_COLOR OPENAI_API_KEY
    OPENAI_BASE_URL OPENAI_MODEL OPENCODE_DISABLE_MODELS_FETCH PATH TMPDIR XDG_CACHE_HOME
    XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME
"""
OUR_VARIABLES = frozenset(_OURS.split())
"""The variables that clients are started with, or not, as the tests need them."""


class Run(NamedTuple):
    """A command line that answers one prompt, and its variables."""

    command: Sequence[str]
    environment: Mapping[str, str] = {}


class RealClient(NamedTuple):
    """One client: how it is run, and what it calls a tool of the server."""

    run: Callable[[Path, ModelServer, list[str], str], Run]
    """Makes the command line: its home, the model, the server's command and the prompt."""
    prefix: str
    """Before the names of the server's tools."""


def write(path: Path, content: Mapping[str, Any] | str) -> None:
    """Write a file of settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def _plain(server: list[str]) -> dict[str, Any]:
    return {"command": server[0], "args": server[1:]}


def _qwen(home: Path, model: ModelServer, server: list[str], prompt: str) -> Run:
    settings = {**QWEN_SETTINGS, "mcpServers": {SERVER: _plain(server)}}
    write(home / ".qwen" / "settings.json", settings)
    model_of = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model.url, "OPENAI_MODEL": "scripted"}
    return Run([str(node.node()), str(node.qwen()), "--yolo", "-p", prompt], model_of)


def _gemini(home: Path, model: ModelServer, server: list[str], prompt: str) -> Run:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "model": {"name": "gemini-2.5-flash"},
        "mcpServers": {SERVER: _plain(server)},
    }
    write(home / ".gemini" / "settings.json", settings)
    model_of = {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    return Run([str(node.node()), str(node.gemini()), "--yolo", "-p", prompt], model_of)


def _claude(home: Path, model: ModelServer, server: list[str], prompt: str) -> Run:
    write(home / "mcp.json", {"mcpServers": {SERVER: _plain(server)}})
    program = str(node.platform_binary("@anthropic-ai/claude-code-*/claude"))
    options = ["--mcp-config", str(home / "mcp.json"), "--strict-mcp-config"]
    options += ["--allowedTools", f"mcp__{SERVER}"]
    model_of = {
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "true",  # by default it is off with another base URL
    }
    return Run([program, "-p", prompt, *options], model_of)


def _codex(home: Path, model: ModelServer, server: list[str], prompt: str) -> Run:
    lines = [
        'model = "gpt-5.5"',  # which has its tool search
        'model_provider = "loopback"',
        'approval_policy = "never"',
        'sandbox_mode = "danger-full-access"',
        "[model_providers.loopback]",
        f'name = "loopback"\nbase_url = "{model.url}"\nwire_api = "responses"',
        f"[mcp_servers.{SERVER}]",
        f"command = {json.dumps(server[0])}\nargs = {json.dumps(server[1:])}",
        "startup_timeout_sec = 60",
    ]
    write(home / ".codex" / "config.toml", "\n".join(lines))
    program = str(node.platform_binary("@openai/codex-*/vendor/*/bin/codex"))
    return Run([program, "exec", "--skip-git-repo-check", prompt])


def _opencode(home: Path, model: ModelServer, server: list[str], prompt: str) -> Run:
    options = {"baseURL": model.url, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": {}}}
    settings = {
        "model": "loopback/scripted",
        "small_model": "loopback/scripted",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"loopback": provider},
        "permission": {"*": "allow"},
        "mcp": {SERVER: {"type": "local", "command": server, "enabled": True, "timeout": 60000}},
    }
    write(home / ".config" / "opencode" / "opencode.json", settings)
    folders = ("config", "data", "state", "cache")
    places = {f"XDG_{name.upper()}_HOME": str(home / f".{name}") for name in folders}
    program = str(node.platform_binary("opencode-*/bin/opencode"))
    return Run([program, "run", prompt], {"OPENCODE_DISABLE_MODELS_FETCH": "1", **places})


def _copilot(home: Path, model: ModelServer, server: list[str], prompt: str) -> Run:
    entry = {"type": "local", **_plain(server), "tools": ["*"]}
    write(home / ".copilot" / "mcp-config.json", {"mcpServers": {SERVER: entry}})
    program = str(node.platform_binary("@github/copilot-*/copilot"))
    model_of = {
        "COPILOT_PROVIDER_BASE_URL": model.url,
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_PROVIDER_WIRE_API": "responses",  # which has its tool search
        "COPILOT_MODEL": "gpt-5.4",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }
    return Run([program, "-p", prompt, "--allow-all-tools"], model_of)


REAL_CLIENTS = {
    "qwen": RealClient(_qwen, "mcp__portico__"),
    "gemini": RealClient(_gemini, "mcp_portico_"),
    "claude": RealClient(_claude, "mcp__portico__"),
    "codex": RealClient(_codex, "mcp__portico__"),
    "opencode": RealClient(_opencode, "portico_"),
    "copilot": RealClient(_copilot, "portico-"),
}
"""The clients by their names in `portico install`."""


def recorded(folder: Path, server: list[str]) -> list[str]:
    """The command line of a server whose conversations are recorded in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return [sys.executable, "-I", "-S", str(RECORDER), str(folder), *server]


async def prompted(
    client: str, folder: Path, model: ModelServer, server: list[str], prompt: str
) -> str:
    """Run a client with a prompt, in a project and a home of its own; what it printed."""
    home, project = folder / "home", folder / "project"
    home.mkdir(exist_ok=True)
    project.mkdir(exist_ok=True)
    run = REAL_CLIENTS[client].run(home, model, server, prompt)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    path = f"{node.node().parent}{os.pathsep}{kept['PATH']}"
    environment = {**kept, "PATH": path, "HOME": str(home), "NO_COLOR": "1", **run.environment}
    process = await asyncio.create_subprocess_exec(
        *run.command,
        cwd=project,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return said.decode(errors="replace")
