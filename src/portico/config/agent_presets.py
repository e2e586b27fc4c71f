"""Presets of well-known agents: how each is started, and its quirks, as data."""

from collections.abc import Mapping

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


class AgentPreset(Struct, frozen=True, kw_only=True):
    """The defaults of one agent: each applies to a key that the config does not set."""

    name: str
    description: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str]
    """Merged with the config's own variables, which win."""
    capabilities: tuple[str, ...] = _OF_CODING_AGENTS
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
        # Its own default mode lets a model approve each tool call.
        args=("--acp", "--approval-mode", "default"),
        env={
            # One process instead of three, and half the memory.
            "QWEN_CODE_NO_RELAUNCH": "1",
            # Otherwise it lists MCP tools in the background, and its first prompt has none.
            "QWEN_CODE_LEGACY_MCP_BLOCKING": "1",
            "NO_COLOR": "1",
        },
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
        package="@agentclientprotocol/claude-agent-acp",
        former=("claude-code-acp",),
        login="claude /login",
    ),
    "codex": AgentPreset(
        name="Codex",
        description="OpenAI's coding agent",
        command="codex-acp",
        env={"NO_BROWSER": "1"},
        package="@agentclientprotocol/codex-acp",
        login="codex login",
        notes=("it runs shells in its own sandbox, and requests few permissions",),
    ),
    "opencode": AgentPreset(
        name="OpenCode",
        description="an open-source coding agent",
        command="opencode",
        args=("acp",),
        env={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        package="opencode-ai",
        login="opencode auth login",
        notes=("it requests permissions only where its own config requires that",),
    ),
}
"""The presets by name."""
