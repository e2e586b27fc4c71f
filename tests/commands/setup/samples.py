"""Clients' files as people have them: other settings, comments, and two servers in each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from portico.core.config.client_table import SOURCES, this_system

SYSTEMS = ("Linux", "Darwin", "Windows")
GITHUB = {
    "command": "npx",
    "args": ["-y", "@modelcontextprotocol/server-github"],
    "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
}
DOCS = {"url": "https://docs.example/mcp", "type": "http"}


class Sample(NamedTuple):
    """A client's file, and the servers in it as Portico writes them."""

    text: str
    servers: Mapping[str, Any]


_PLAIN = """{
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_TOKEN": "${env:GITHUB_TOKEN}" }
    },
    "docs": { %s: "https://docs.example/mcp" }
  }
}
"""
_ENV = {**GITHUB, "env": {"GITHUB_TOKEN": "${env:GITHUB_TOKEN}"}}
_REMOTE = {"url": "https://docs.example/mcp"}
_GEMINI = """{
  "security": { "auth": { "selectedType": "gemini-api-key" } },
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_TOKEN": "$GITHUB_TOKEN" },
      "trust": false
    },
    "docs": { "httpUrl": "https://docs.example/mcp", "timeout": 30000 }
  },
  "ui": { "theme": "Default" }
}
"""
_OF_GEMINI = {"github": GITHUB, "docs": {**DOCS, "timeouts": {"call": 30.0}}}
SAMPLES = {
    "claude": Sample(
        """{
  "numStartups": 17,
  "mcpServers": {
    "github": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}" }
    },
    "docs": { "type": "http", "url": "https://docs.example/mcp" }
  },
  "projects": {
    "/": {
      "allowedTools": [],
      "mcpServers": {
        "db": { "type": "stdio", "command": "uvx", "args": ["pg-mcp"], "env": {} }
      }
    },
    "/nowhere/else": { "mcpServers": {} }
  },
  "userID": "4f2c"
}
""",
        {
            "github": GITHUB,
            "docs": DOCS,
            "db": {"command": "uvx", "args": ["pg-mcp"], "cwd": "/"},
        },
    ),
    "claude-desktop": Sample(
        """{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}" }
    },
    "files": { "command": "npx", "args": ["files-mcp", "/data"] }
  }
}
""",
        {"github": GITHUB, "files": {"command": "npx", "args": ["files-mcp", "/data"]}},
    ),
    "cursor": Sample(_PLAIN % '"url"', {"github": _ENV, "docs": _REMOTE}),
    "windsurf": Sample(_PLAIN % '"serverUrl"', {"github": _ENV, "docs": _REMOTE}),
    "vscode": Sample(
        """{
\t// My servers.
\t"inputs": [
\t\t{ "id": "github-token", "type": "promptString", "password": true },
\t],
\t"servers": {
\t\t"github": {
\t\t\t"type": "stdio",
\t\t\t"command": "npx",
\t\t\t"args": ["-y", "@modelcontextprotocol/server-github"], // the official one
\t\t\t"env": { "GITHUB_TOKEN": "${input:github-token}" },
\t\t},
\t\t"docs": { "type": "http", "url": "https://docs.example/mcp" }, // all of it
\t},
}
""",
        {"github": GITHUB, "docs": DOCS},
    ),
    "codex": Sample(
        """model = "gpt-5" # the large one

[mcp_servers.github]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-github"]

[mcp_servers.github.env]
GITHUB_TOKEN = "${GITHUB_TOKEN}"

# All of it.
[mcp_servers.docs]
url = "https://docs.example/mcp"
bearer_token_env_var = "DOCS_TOKEN"
tool_timeout_sec = 30

[tui]
notifications = true
""",
        {
            "github": GITHUB,
            "docs": {
                **_REMOTE,
                "headers": {"Authorization": "Bearer ${DOCS_TOKEN}"},
                "timeouts": {"call": 30.0},
            },
        },
    ),
    "gemini": Sample(_GEMINI, _OF_GEMINI),
    "qwen": Sample(_GEMINI, _OF_GEMINI),
    "opencode": Sample(
        """{
  "$schema": "https://opencode.ai/config.json",
  "theme": "system", // as the desktop
  "mcp": {
    "github": {
      "type": "local",
      "command": ["npx", "-y", "@modelcontextprotocol/server-github"],
      "environment": { "GITHUB_TOKEN": "${GITHUB_TOKEN}" },
      "enabled": true
    },
    "docs": { "type": "remote", "url": "https://docs.example/mcp", "enabled": false }
  }
}
""",
        {"github": GITHUB, "docs": {**_REMOTE, "enabled": False}},
    ),
    "copilot": Sample(
        """{
  "mcpServers": {
    "github": {
      "type": "local",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}" },
      "tools": ["*"]
    },
    "docs": { "type": "http", "url": "https://docs.example/mcp", "tools": ["read"] }
  }
}
""",
        {
            "github": {**GITHUB, "tools": {"allow": ["*"]}},
            "docs": {**DOCS, "tools": {"allow": ["read"]}},
        },
    ),
    "zed": Sample(
        """// Zed settings
{
  "theme": "One Dark",
  "context_servers": {
    // Issues and pull requests.
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}" }
    },
    "docs": { "url": "https://docs.example/mcp" }
  },
  "vim_mode": false
}
""",
        {"github": GITHUB, "docs": _REMOTE},
    ),
}
"""A realistic file for each client."""


def on_system(monkeypatch: pytest.MonkeyPatch, home: Path, system: str = "Linux") -> None:
    """Have a home of the test's own, on one of the systems."""
    home.mkdir(exist_ok=True)
    for name in ("CODEX_HOME", "QWEN_HOME", "COPILOT_HOME", "CLAUDE_CONFIG_DIR", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PORTICO_HOME", str(home / "portico"))
    monkeypatch.setattr("platform.system", lambda: system)


def placed(client: str, text: str | None = None) -> Path:
    """Write a client's file where it belongs on this system: the sample, or another text."""
    path = Path(SOURCES[client].file(this_system()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SAMPLES[client].text if text is None else text)
    return path
