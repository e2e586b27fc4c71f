"""A client that never reads stderr is served like any other, however much there is to tell."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.running import WAIT_S

NOWHERE = "no-such-command-anywhere"


def full_pipe() -> tuple[int, int]:
    """A pipe that takes nothing more."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)  # as whoever inherits it finds it
    return read, write


def answers(command: Sequence[str], home: Path, *messages: dict[str, object]) -> list[bytes]:
    """What is answered to these, while stderr is full."""
    read, write = full_pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "portico", *command],
            input=b"".join(json.dumps(message).encode() + b"\n" for message in messages),
            stdout=subprocess.PIPE,
            stderr=write,
            env={**os.environ, "PORTICO_HOME": str(home)},
            timeout=WAIT_S,
            check=False,
        )
    finally:
        os.close(read)
        os.close(write)
    return done.stdout.splitlines()


@pytest.mark.parametrize("command", ["wrap", "serve"])
def test_what_cannot_be_told_holds_no_answer_up(command: str, tmp_path: Path) -> None:
    config = tmp_path / "portico.toml"
    # The first would be told of at the start, the second when it is asked what it offers.
    config.write_text(
        f'[gateway]\npinned = ["gone__tool"]\n[servers.gone]\ncommand = "{NOWHERE}"\n'
    )
    words = {
        "wrap": ["wrap", "--warm", "--", NOWHERE],
        "serve": ["serve", "--alone", "--config", str(config)],
    }[command]
    params = {"protocolVersion": "2025-06-18", "capabilities": {}}
    params["clientInfo"] = {"name": "deaf", "version": "1"}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    found = answers(words, tmp_path, first, {"jsonrpc": "2.0", "id": 2, "method": "ping"})
    assert {json.loads(line).get("id") for line in found} >= {1, 2}
