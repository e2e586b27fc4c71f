"""Real agents with settings of a user who trusts them, each with a scripted model server."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents.delegation.qwen import QwenGateway, qwen_table
from tests.support import node
from tests.support.model_dialects import Step
from tests.support.model_server import ModelServer, calls

Table = dict[str, Any]
COMMAND, EDITED, RAN = "echo ran > ran.txt", "edited.txt", "ran.txt"
_PATCH = f"*** Begin Patch\n*** Add File: {EDITED}\n+edited\n*** End Patch"


class RealAgent(NamedTuple):
    """One agent: its table, with the settings of its user, and its tools."""

    table: Callable[[Path, ModelServer], Table]
    run: Step
    """Runs the command, which writes a file."""
    edit: Step
    """Writes the other file; `@` stands for the folder of the task."""
    prefix: str = "mcp__portico__"
    """Before the names of the tools of Portico."""

    def edits_in(self, folder: Path) -> Step:
        """The step that edits in a folder."""
        given = self.edit.arguments.items()
        placed = {key: value.replace("@", str(folder)) for key, value in given}
        return calls(self.edit.tool, **placed)


class RealAgentGateway(QwenGateway):
    """The gateway of one of these agents."""

    def __init__(self, folder: Path, model: ModelServer, id: str, *more: str, **agent: Any) -> None:
        self._id = id
        super().__init__(folder, model, *more, **agent)

    def table(self, home: Path) -> Table:
        """The table of the agent, without its preset."""
        table = REAL_AGENTS[self._id].table(home, self.model)
        variables = {"HOME": str(home), **table.pop("env")}
        return {**table, "id": self._id, "env": variables}


def _wrote(path: Path, content: Mapping[str, Any] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def _qwen(home: Path, model: ModelServer) -> Table:
    table = qwen_table(home, model)
    del table["preset"]
    return {**table, "args": [str(node.qwen()), "--acp", "--yolo"]}


def _gemini(home: Path, model: ModelServer) -> Table:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "model": {"name": "gemini-2.5-flash"},  # otherwise it asks a model which to use
    }
    _wrote(home / ".gemini" / "settings.json", settings)
    return {
        "command": str(node.node()),
        "args": [str(node.gemini()), "--acp", "--yolo"],
        "env": {
            "GEMINI_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
    }


def _claude(home: Path, model: ModelServer) -> Table:
    allowed = {"defaultMode": "acceptEdits", "allow": ["Bash", "Edit", "Write"]}
    _wrote(home / ".claude" / "settings.json", {"permissions": allowed})
    return {
        "command": str(node.node()),
        "args": [str(node.acp_adapter("claude-agent-acp"))],
        "env": {
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.port}",
            "CLAUDE_CODE_EXECUTABLE": str(
                node.platform_binary("@anthropic-ai/claude-code-*/claude")
            ),
        },
    }


def _codex(home: Path, model: ModelServer) -> Table:
    _wrote(
        home / ".codex" / "config.toml",
        'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n',
    )
    provider = {"name": "loopback", "base_url": model.url, "wire_api": "responses"}
    settings = {"model": "scripted", "model_providers": {"loopback": provider}}
    return {
        "command": str(node.node()),
        "args": [str(node.acp_adapter("codex-acp"))],
        "env": {
            "MODEL_PROVIDER": "loopback",
            "CODEX_CONFIG": json.dumps(settings),
            "CODEX_PATH": str(node.platform_binary("@openai/codex-*/vendor/*/bin/codex")),
        },
    }


def _opencode(home: Path, model: ModelServer) -> Table:
    options = {"baseURL": model.url, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": {}}}
    allowed = {"edit": "allow", "bash": {"*": "allow"}, "*": "allow"}
    settings = {
        "model": "loopback/scripted",
        "small_model": "loopback/scripted",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"loopback": provider},
        "permission": allowed,
        "agent": {"build": {"permission": allowed}},
    }
    _wrote(home / ".config" / "opencode" / "opencode.json", settings)
    folders = ("config", "data", "state", "cache")
    return {
        "command": str(node.platform_binary("opencode-*/bin/opencode")),
        "args": ["acp"],
        "env": {
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            **{f"XDG_{name.upper()}_HOME": str(home / f".{name}") for name in folders},
        },
    }


REAL_AGENTS = {
    "qwen": RealAgent(
        _qwen,
        calls("run_shell_command", command=COMMAND, description="x"),
        calls("write_file", file_path=f"@/{EDITED}", content="edited"),
    ),
    "gemini": RealAgent(
        _gemini,
        calls("run_shell_command", command=COMMAND, description="x"),
        calls("write_file", file_path=f"@/{EDITED}", content="edited"),
        "mcp_portico_",
    ),
    "claude": RealAgent(
        _claude,
        calls("Bash", command=COMMAND, description="x"),
        calls("Write", file_path=f"@/{EDITED}", content="edited"),
    ),
    "codex": RealAgent(
        _codex,
        calls("exec_command", cmd=COMMAND),
        calls("exec_command", cmd=f"apply_patch <<'EOF'\n{_PATCH}\nEOF\n"),
    ),
    "opencode": RealAgent(
        _opencode,
        calls("bash", command=COMMAND, description="x"),
        calls("write", filePath=f"@/{EDITED}", content="edited"),
        "portico_",
    ),
}
"""The agents by their presets."""
