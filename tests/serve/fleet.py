"""Ten real servers behind one gateway: of npm and PyPI, on pipes, over HTTP in both eras and as it
was at first, and another Portico."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.rigs.running import everything, listening
from tests.serve.gateway import Entry, command, written
from tests.support import node
from tests.support.running import EVERYTHING, WAIT_S, free_port, portico_run
from tests.wrap.faults import until

Call = tuple[str, dict[str, Any]]
"""A tool of a server's, and arguments for it."""

GROUPS = {"papers": ["git", "files"], "clocks": ["time"]}


@dataclass(frozen=True)
class Member:
    """One server: how the config has it, what to search for, and what to call."""

    entry: Entry
    query: str
    calls: list[Call] = field(default_factory=list)
    """The first is what the query is about."""

    def directly(self) -> Any:
        """A transport of the SDK that leads to it with nothing in between."""
        entry = self.entry
        url = entry.get("url", "")
        if url:
            return sse_client(url) if url.endswith("/sse") else streamable_http_client(url)
        env = {**os.environ, **entry.get("env", {})}
        parameters = StdioServerParameters(command=entry["command"], args=entry["args"], env=env)
        return stdio_client(parameters)


@dataclass(frozen=True)
class Fleet:
    """All ten, and the config that names them."""

    home: Path
    config: Path
    members: dict[str, Member]


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """The servers, those over HTTP running for as long as the block does."""
    repository = folder / "repository"
    repository.mkdir()
    (repository / "kept.txt").write_text("kept")
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    with ExitStack() as stack:
        urls = {
            era: stack.enter_context(listening(everything("--http", "0", "--era", era)))
            for era in ("legacy", "modern")
        }
        urls["old"] = stack.enter_context(_old())
        members = {**_of_npm(folder, repository), **_of_pypi(repository), **_of_http(urls)}
        members["portico"] = Member(
            command(portico_run(EVERYTHING)), "embedded resource inside the result", _EVERYTHING
        )
        assert len(members) == 10
        entries = {name: member.entry for name, member in members.items()}
        config = written(folder / "portico.toml", entries, groups=GROUPS)
        yield Fleet(folder / "home", config, members)


_EVERYTHING: list[Call] = [
    ("test_embedded_resource", {}),
    ("test_multiple_content_types", {}),
    ("test_audio_content", {}),
    ("test_error_handling", {}),
]


def _of_npm(folder: Path, repository: Path) -> dict[str, Member]:
    def started(name: str, *words: str, **env: str) -> Entry:
        return command([str(node.node()), str(node.server(name)), *words], env=env)

    first_thought = {
        "thought": "one",
        "thoughtNumber": 1,
        "totalThoughts": 1,
        "nextThoughtNeeded": False,
    }
    return {
        "everything": Member(
            started("everything", "stdio"),
            "tiny image logo",
            [
                ("get-tiny-image", {}),
                ("get-sum", {"a": 2, "b": 3}),
                ("get-resource-links", {"count": 3}),
                ("get-structured-content", {"location": "Chicago"}),
                ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ],
        ),
        "files": Member(
            started("filesystem", str(repository)),
            "read a text file",
            [
                ("read_text_file", {"path": str(repository / "kept.txt")}),
                ("read_text_file", {"path": "/etc/hostname"}),
            ],
        ),
        "memory": Member(
            started("memory", MEMORY_FILE_PATH=str(folder / "memory.jsonl")),
            "read the entire knowledge graph",
            [("read_graph", {})],
        ),
        "thinking": Member(
            started("sequential-thinking"),
            "think step by step, revise earlier thoughts",
            [("sequentialthinking", first_thought)],
        ),
    }


def _of_pypi(repository: Path) -> dict[str, Member]:
    def started(module: str, *words: str) -> Entry:
        return command([sys.executable, "-m", module, *words])

    tokyo = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return {
        "git": Member(
            started("mcp_server_git", "--repository", str(repository)),
            "working tree status of a repository",
            [
                ("git_status", {"repo_path": str(repository)}),
                ("git_status", {"repo_path": "/nowhere"}),
            ],
        ),
        "time": Member(
            started("mcp_server_time", "--local-timezone", "UTC"),
            "convert time between timezones",
            [("convert_time", tokyo)],
        ),
    }


def _of_http(urls: dict[str, str]) -> dict[str, Member]:
    query = "embedded resource inside the result"
    return {
        "legacy": Member({"url": urls["legacy"]}, query, _EVERYTHING),
        "modern": Member({"url": urls["modern"]}, query, _EVERYTHING),
        "old": Member({"url": urls["old"]}, "echo back the input", [("echo", {"message": "hi"})]),
    }


@contextmanager
def _old() -> Iterator[str]:
    """The reference server over HTTP as it was before 2025."""
    port = free_port()
    process = subprocess.Popen(
        [str(node.node()), str(node.everything_server()), "sse"],
        env={**os.environ, "PORT": str(port)},
        stderr=subprocess.DEVNULL,
    )

    def answers() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), WAIT_S).close()
            return True
        return False

    try:
        assert until(answers), "it does not listen"
        yield f"http://127.0.0.1:{port}/sse"
    finally:
        process.kill()
        process.wait()
