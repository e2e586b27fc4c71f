"""The quoted stderr of an exited process: the reason, even if much output follows it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from portico.upstream.process.stderr_tail import StderrTail
from tests.support.messages import initialize
from tests.support.running import WAIT_S
from tests.wrap.faults import wrap_command

USAGE = "\n".join(f"      --option-{n} string   one of many" for n in range(40))


@pytest.mark.parametrize(
    "reason",
    [
        "Error: no current context is set",
        "panic: runtime error: index out of range",
        'Exception in thread "main" java.lang.IllegalStateException: no',
        "TypeError [ERR_X]: no",
        "fatal error: all goroutines are asleep",
        "Uncaught Exception: no",
    ],
)
def test_the_reason_is_quoted_though_a_long_text_follows(reason: str) -> None:
    ring = StderrTail()
    ring.add(f"Error: an older one\nstarting\n{reason}\n\nUsage:\n{USAGE}\n".encode())
    said = ring.tail().splitlines()
    assert (said[0], said[1], len(said)) == (reason, "...", 12)
    assert said[-1].endswith("--option-39 string   one of many")


@pytest.mark.parametrize("end", ["ValueError: the newer", "that is all"])
def test_otherwise_the_end_is_quoted_as_it_is(end: str) -> None:
    before = "ValueError: the older\n" if end.startswith("ValueError") else "no error, and so on\n"
    ring = StderrTail()
    ring.add(f"{before}{USAGE}\n{end}".encode())
    said = ring.tail().splitlines()
    assert (said[0].strip()[:11], said[-1], len(said)) == ("--option-29", end, 12)


def test_a_server_that_prints_its_usage_after_the_reason_is_explained(tmp_path: Path) -> None:
    program = f"import sys; sys.exit('Error: no context is set\\nUsage:\\n' + {USAGE!r})"
    done = subprocess.run(
        wrap_command(tmp_path, "--", sys.executable, "-c", program),
        input=json.dumps(initialize()),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    error = json.loads(done.stdout)["error"]
    assert "last output:\n  Error: no context is set\n  ...\n" in error["message"]
    assert done.returncode == 1
