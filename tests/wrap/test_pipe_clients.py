"""Clients that write all they have to say and close, as `printf ... | portico wrap` does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.rigs.running import ledger
from tests.support.messages import initialize, request
from tests.support.running import WAIT_S
from tests.wrap.faults import wrap_command

ASKING = str(Path(__file__).parent / "servers" / "asking.py")
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(id: int, text: str) -> dict[str, Any]:
    return request("tools/call", {"name": "echo", "arguments": {"text": text}}, id)


def piped(command: list[str], *messages: Any) -> list[Any]:
    """The answers to messages that are all sent before any of them is answered."""
    said = "\n".join(map(json.dumps, messages))
    done = subprocess.run(
        command, input=said, capture_output=True, text=True, timeout=2 * WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_of_a_shells_pipe_is_answered_with_a_catalog_and_without(tmp_path: Path) -> None:
    command = wrap_command(tmp_path / "home", "--", *ledger(tmp_path / "calls"))
    for _ in range(2):
        lists = request("tools/list", {}, 1)
        hello, tools, *called = piped(
            command, initialize(), INITIALIZED, lists, call(2, "a"), call(3, "b")
        )
        assert (hello["id"], tools["id"]) == (0, 1)
        assert len(tools["result"]["tools"]) == 2
        said = {answer["id"]: answer["result"]["content"][0]["text"] for answer in called}
        assert said == {2: "a", 3: "b"}


def test_a_batch_may_follow_initialize_at_once(tmp_path: Path) -> None:
    command = wrap_command(tmp_path / "home", "--", *ledger(tmp_path / "calls"))
    _, batch = piped(command, initialize("2025-03-26"), [call(1, "a"), call(2, "b")])
    assert {answer["id"] for answer in batch} == {1, 2}


def test_what_comes_before_initialize_is_refused_all_the_same(tmp_path: Path) -> None:
    command = wrap_command(tmp_path / "home", "--", *ledger(tmp_path / "calls"))
    refused, _, answered = piped(command, call(1, "a"), initialize(), call(2, "b"))
    assert "before initialize" in refused["error"]["message"]
    assert answered["id"] == 2
    assert (tmp_path / "calls").read_text() == "b\n"


def test_a_question_that_nobody_can_answer_any_more_is_refused_at_once(tmp_path: Path) -> None:
    command = wrap_command(tmp_path / "home", "--", sys.executable, "-I", "-S", ASKING)
    asked = request("tools/call", {"name": "greet", "arguments": {}}, 1)
    answers = piped(command, initialize(capabilities={"elicitation": {}}), INITIALIZED, asked)
    # If it were waited for, the drain would end the call.
    assert answers[-1]["id"] == 1
    assert answers[-1]["result"]["content"] == [{"type": "text", "text": "an error"}]
