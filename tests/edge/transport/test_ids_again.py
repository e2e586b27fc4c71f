"""A client on pipes reuses an id as soon as it has read its response."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import bad
from tests.serve.gateway import command, serve_command, written
from tests.support.messages import initialize
from tests.support.running import EVERYTHING, portico_run
from tests.support.soak import times
from tests.wrap.faults import wrap_command

ROUNDS = times(8_000, 80_000)
IDS = 4
"""Several calls are in flight at once: a single call rarely finds its id in use."""


def run_one(home: Path) -> tuple[list[str], dict[str, Any]]:
    return portico_run(EVERYTHING), {"name": "test_simple_text", "arguments": {}}


def wrap_one(home: Path) -> tuple[list[str], dict[str, Any]]:
    return wrap_command(home, "--", *bad("stdio", "plain")), _echo("echo")


def serve_one(home: Path) -> tuple[list[str], dict[str, Any]]:
    config = written(home / "portico.toml", {"bad": command(bad("stdio", "plain"))})
    return serve_command(home, config, "--expose", "all"), _echo("bad__echo")


def _echo(name: str) -> dict[str, Any]:
    return {"name": name, "arguments": {"text": "x"}}


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("start", [run_one, wrap_one, serve_one])
@pytest.mark.parametrize("has_progress", [False, True])
def test_an_id_is_free_as_soon_as_its_answer_is_read(
    tmp_path: Path, start: Any, has_progress: bool, record_property: Any
) -> None:
    words, params = start(tmp_path)
    if has_progress:  # such a call takes a longer path than a plain one
        params = {**params, "_meta": {"progressToken": 1}}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_line(initialize()))
        process.stdin.flush()
        assert b'"result"' in process.stdout.readline()
        process.stdin.write(_line({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        calls = {
            id: _line({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            for id in range(1, IDS + 1)
        }
        process.stdin.writelines(calls.values())
        process.stdin.flush()
        refused = answered = 0
        for line in process.stdout:
            message = json.loads(line)
            if "method" in message:
                continue
            answered += 1
            refused += "error" in message
            if answered == ROUNDS:
                break
            process.stdin.write(calls[message["id"]])
            process.stdin.flush()
        process.stdin.close()
        process.stdout.read()
    record_property("soak", f"{answered} calls, {refused} refused")
    assert (answered, refused) == (ROUNDS, 0)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"
