"""A real `portico serve`, over HTTP or on pipes, in front of the servers of a config."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from portico.edge.windows.control import send_command
from tests.support.running import PLAIN, WAIT_S, Piped
from tests.wrap.faults import Wrap, alive, descendants, portico_command, until

Entry = dict[str, Any]
"""A server as the config has it."""


def serve_command(home: Path, config: Path, *options: str, by: Sequence[str] = PLAIN) -> list[str]:
    """The command line of `portico serve`, with all that it keeps in a folder of the test's."""
    return portico_command(home, "serve", "--config", str(config), *options, by=by)


def written(path: Path, servers: dict[str, Entry], **tables: dict[str, Any]) -> Path:
    """A config with these servers, groups and settings; replaced whole, as editors do."""
    lines = []
    for name, entry in servers.items():
        lines += _table(f"servers.{name}", entry)
    for name, servers_of in tables.pop("groups", {}).items():
        lines += _table(f"groups.{name}", {"servers": servers_of})
    for name, table in tables.items():
        lines += _table(name, table)
    new = path.with_suffix(".new")
    new.write_text("\n".join(lines))
    new.replace(path)
    return path


def command(words: list[str], **more: Any) -> Entry:
    """A server that is started by a command line."""
    return {"command": words[0], "args": words[1:], **more}


def _table(name: str, fields: dict[str, Any]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in fields.items()), ""]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(of)}" for key, of in value.items()) + "}"
    return json.dumps(value)  # which is TOML too, of all that stands in our configs


class Gateway(Wrap):
    """A running `portico serve --http`; it must end well, and leave no process behind."""

    verb = "serve"

    def __init__(self, home: Path, config: Path, *options: str, **how: Any) -> None:
        super().__init__(home, "--config", str(config), *options, **how)
        self.home = home

    def status(self) -> dict[str, Entry]:
        """By name, how each server is."""
        with self.client() as client:
            return status_of(client.call("gateway_status", detail="full"))


class Pipes(Piped):
    """A running `portico serve` on pipes; gone, with all it started, when the block is left."""

    def __init__(
        self,
        home: Path,
        config: Path,
        *options: str,
        watched: bool = True,
        by: Sequence[str] = PLAIN,
    ) -> None:
        super().__init__(serve_command(home, config, *options, by=by), watched=watched)
        self._control = home / "state" / "control"

    def __enter__(self) -> Self:
        return self

    @property
    def owner(self) -> int:
        """The process that has the gateway; 0 if it is none of its own."""
        owners = [int(path.stem) for path in self._control.glob("*.sock")]
        return next((pid for pid in owners if pid != self.process.pid), 0)

    def __exit__(self, *about: object) -> None:
        kin = descendants(self.process.pid) | self._household()
        super().__exit__(*about)
        assert until(lambda: not alive(kin)), "it left processes behind"

    def _household(self) -> set[int]:
        """The owner and all it started, if this is its last window."""
        owner = self.owner
        told = (
            send_command(str(self._control), f"{owner}.sock", "status", WAIT_S) if owner else None
        )
        is_last = told is not None and told.get("windows") == 1
        return {owner} | descendants(owner) if is_last else set()

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The whole answer to the call of a tool."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def execute(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a tool called through `execute_tool`."""
        return result_of(self.call("execute_tool", name=tool, arguments=arguments))

    def said(self, tool: str, /, **arguments: Any) -> str:
        """The text of a tool's result."""
        return text_in(result_of(self.call(tool, **arguments)))

    def status(self) -> dict[str, Entry]:
        """By name, how each server is."""
        return status_of(self.call("gateway_status", detail="full"))

    def tools(self) -> list[str]:
        """The names that `tools/list` has."""
        return [tool["name"] for tool in self.ask("tools/list")["result"]["tools"]]


def result_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The result of an answer, which there must be."""
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


def text_in(result: dict[str, Any]) -> str:
    """All text of a tool's result."""
    return "\n".join(block.get("text", "") for block in result["content"])


def status_of(answer: dict[str, Any]) -> dict[str, Entry]:
    """By server, what `gateway_status` says."""
    servers = result_of(answer)["structuredContent"]["servers"]
    return {server["server"]: server for server in servers}


def refused(home: Path, config: Path, *options: str) -> tuple[int, str]:
    """The exit code and stderr of a `portico serve` that cannot begin; it must print nothing."""
    done = subprocess.run(
        serve_command(home, config, *options),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()
