"""Presets of well-known agents: how each is started and supervised, and its quirks, as data.

An agent requests permissions only in some of its modes, or with some settings of its own. A preset
sets them over the user's own settings of this agent: without requests, a policy has no effect.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_OF_CODING_AGENTS = (
    "general",
    "code-generation",
    "code-review",
    "debugging",
    "documentation",
    "refactoring",
    "testing",
)


_CLAUDE_ASKS = {"ask": ["Bash", "Edit", "Write", "NotebookEdit", "WebFetch", "WebSearch", "mcp__*"]}
"""Rules of Claude Code; `ask` wins over `allow`."""

_OPENCODE_ASKS = {
    "*": "ask",
    "read": {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"},
    **dict.fromkeys(("list", "glob", "grep", "lsp", "todoread", "todowrite"), "allow"),
    **dict.fromkeys(("bash", "edit", "webfetch", "external_directory", "doom_loop"), "ask"),
}
"""Rules of OpenCode. The last one wins, so every key that its own config may have is set."""

_COPILOT_MODES = "https://agentclientprotocol.com/protocol/session-modes"


class AgentPreset(Struct, frozen=True, kw_only=True):
    """The defaults of one agent: each applies to a key that the config does not set."""

    name: str
    description: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str]
    """Merged with the config's own variables, which win."""
    capabilities: tuple[str, ...] = _OF_CODING_AGENTS
    modes: tuple[str, ...]
    """The session modes in which it requests permissions; the first is set."""
    overrides: tuple[str, ...] = ()
    """Arguments, variables and options with which a config lets it do more without a request."""
    session_meta: Mapping[str, Any] = {}
    """The `_meta` of its sessions under a policy: its own rules that allow a tool do not apply."""
    package: str
    """The npm package with its command."""
    former: tuple[str, ...] = ()
    """Earlier names of its command."""
    login: str
    """The command with which a person logs in."""
    refused_fs: Mapping[str, str] = {}
    """Values of `callbacks.fs` that the agent does not support, and why."""
    notes: tuple[str, ...] = ()
    """Its quirks, for people; the subject of each is the agent."""


PRESETS: Mapping[str, AgentPreset] = {
    "qwen": AgentPreset(
        name="Qwen Code",
        description="Alibaba's coding agent",
        command="qwen",
        args=("--acp",),
        env={
            # One process instead of three, and half the memory.
            "QWEN_CODE_NO_RELAUNCH": "1",
            # Otherwise it lists MCP tools in the background, and its first prompt has none.
            "QWEN_CODE_LEGACY_MCP_BLOCKING": "1",
            "NO_COLOR": "1",
        },
        # Its own default mode lets a model approve each tool call.
        modes=("default", "plan"),
        overrides=("--allowed-tools",),
        package="@qwen-code/qwen-code",
        login="qwen",
        notes=("a second prompt in a busy session fails the first one",),
    ),
    "gemini": AgentPreset(
        name="Gemini CLI",
        description="Google's coding agent",
        command="gemini",
        args=("--acp",),
        env={"GEMINI_CLI_NO_RELAUNCH": "1", "NO_COLOR": "1"},
        modes=("default", "plan"),
        overrides=("--allowed-tools", "--policy", "--admin-policy"),
        package="@google/gemini-cli",
        login="gemini",
        refused_fs=dict.fromkeys(
            ("read", "read-write"), "with it, this agent cannot write new files"
        ),
        notes=(
            "it does not exit when its input ends, and is stopped by a signal",
            "it trusts a folder only with GEMINI_CLI_TRUST_WORKSPACE=true in env",
        ),
    ),
    "claude": AgentPreset(
        name="Claude Agent",
        description="Anthropic's coding agent",
        command="claude-agent-acp",
        env={"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        modes=("default", "plan"),
        session_meta={"claudeCode": {"options": {"settings": {"permissions": _CLAUDE_ASKS}}}},
        package="@agentclientprotocol/claude-agent-acp",
        former=("claude-code-acp",),
        login="claude /login",
    ),
    "codex": AgentPreset(
        name="Codex",
        description="OpenAI's coding agent",
        command="codex-acp",
        env={"NO_BROWSER": "1"},
        # In its own default mode, it edits the files of the task's folder without a request.
        modes=("read-only",),
        package="@agentclientprotocol/codex-acp",
        login="codex login",
        notes=("it runs commands that only read without a request, in a sandbox of its own",),
    ),
    "opencode": AgentPreset(
        name="OpenCode",
        description="an open-source coding agent",
        command="opencode",
        args=("acp",),
        env={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            # By itself it requests almost nothing. This wins over the files of user and project.
            "OPENCODE_CONFIG_CONTENT": json.dumps(
                {
                    "permission": _OPENCODE_ASKS,
                    "agent": {
                        name: {"permission": _OPENCODE_ASKS}
                        for name in ("build", "plan", "general")
                    },
                }
            ),
        },
        modes=("build", "plan"),
        overrides=("OPENCODE_CONFIG_CONTENT", "OPENCODE_PERMISSION"),
        package="opencode-ai",
        login="opencode auth login",
    ),
    "copilot": AgentPreset(
        name="Copilot CLI",
        description="GitHub's coding agent",
        command="copilot",
        args=("--acp", "--stdio"),
        env={"COPILOT_ALLOW_ALL": "false", "COPILOT_AUTO_UPDATE": "false", "NO_COLOR": "1"},
        modes=(f"{_COPILOT_MODES}#agent", f"{_COPILOT_MODES}#plan"),
        overrides=(
            *("--allow-all", "--allow-all-tools", "--allow-all-paths", "--allow-all-urls"),
            *("--allow-tool", "--allow-url", "--assisted-approval", "--autopilot", "--yolo"),
            *("COPILOT_ALLOW_ALL", "allow_all"),
        ),
        package="@github/copilot",
        login="copilot login",
        notes=("an approval that you gave in Copilot CLI itself, for a folder, holds here too",),
    ),
}
"""The presets by name."""
