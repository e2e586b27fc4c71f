"""Real clients, each run once without a terminal and with a scripted model server."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import node
from tests.support.model_server import ModelServer

Command = list[str]
PROMPT = "Tell me what the clock says."


class ClientRun(NamedTuple):
    """How a client is run for one prompt."""

    command: Callable[[ModelServer], Command]
    environ: Callable[[ModelServer], Mapping[str, str]]
    prefix: str
    """Before the names of Portico's tools."""
    settings: Callable[[Path, ModelServer], None] = lambda *_: None
    """Writes what its user has in its files before Portico is added."""
    program: Callable[[], Command] = list


def _wrote(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))


def _on_node(script: Callable[[], Path]) -> Callable[[], Command]:
    return lambda: [str(node.node()), str(script())]


def _binary(pattern: str) -> Callable[[], Command]:
    return lambda: [str(node.platform_binary(pattern))]


def _gemini_settings(home: Path, model: ModelServer) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "model": {"name": "gemini-2.5-flash"},  # otherwise it asks a model which to use
    }
    _wrote(home / ".gemini" / "settings.json", settings)


def _qwen_settings(home: Path, model: ModelServer) -> None:
    _wrote(home / ".qwen" / "settings.json", {"security": {"auth": {"selectedType": "openai"}}})


def _opencode_settings(home: Path, model: ModelServer) -> None:
    options = {"baseURL": model.url, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": {}}}
    settings = {
        "model": "loopback/scripted",
        "small_model": "loopback/scripted",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"loopback": provider},
    }
    _wrote(home / ".config" / "opencode" / "opencode.json", settings)


def _codex_options(model: ModelServer) -> Command:
    provider = f'{{name="loopback",base_url="{model.url}",wire_api="responses"}}'
    pairs = (
        f"model_providers.loopback={provider}",
        'model_provider="loopback"',
        'model="scripted"',
    )
    return [word for pair in pairs for word in ("-c", pair)]


RUNS = {
    "qwen": ClientRun(
        program=_on_node(node.qwen),
        command=lambda model: ["--yolo", "-p", PROMPT],
        environ=lambda model: {
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_MODEL": "scripted",
        },
        prefix="mcp__portico__",
        settings=_qwen_settings,
    ),
    "gemini": ClientRun(
        program=_on_node(node.gemini),
        command=lambda model: ["--yolo", "-p", PROMPT],
        environ=lambda model: {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        prefix="mcp_portico_",
        settings=_gemini_settings,
    ),
    "claude": ClientRun(
        program=_binary("@anthropic-ai/claude-code-*/claude"),
        command=lambda model: ["-p", PROMPT, "--allowedTools", "mcp__portico"],
        environ=lambda model: {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        prefix="mcp__portico__",
    ),
    "codex": ClientRun(
        program=_binary("@openai/codex-*/vendor/*/bin/codex"),
        command=lambda model: [
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            *_codex_options(model),
            PROMPT,
        ],
        environ=lambda model: {},
        prefix="mcp__portico__",
    ),
    "opencode": ClientRun(
        program=_binary("opencode-*/bin/opencode"),
        command=lambda model: ["run", PROMPT],
        environ=lambda model: {"OPENCODE_DISABLE_MODELS_FETCH": "1"},
        prefix="portico_",
        settings=_opencode_settings,
    ),
    "copilot": ClientRun(
        program=_binary("@github/copilot-*/copilot"),
        command=lambda model: ["-p", PROMPT, "--allow-all-tools"],
        environ=lambda model: {
            "COPILOT_PROVIDER_BASE_URL": model.url,
            "COPILOT_MODEL": "scripted",
            "COPILOT_OFFLINE": "true",
        },
        prefix="portico-",
    ),
}
"""By their names in `portico install`."""
