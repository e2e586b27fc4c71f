"""`make run`: something to see, and it stays up."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.shared import ROOT


def test_the_demo_serves_calls_itself_says_how_to_add_it_and_stays_up(tmp_path: Path) -> None:
    environment = {**os.environ, "PORTICO_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "portico.cli.demo"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        assert demo.poll() is None
        demo.terminate()
        assert demo.wait(60) == 0
    assert '"sky": "clear"' in said
    assert "claude mcp add quickstart -- portico run" in said
    assert "claude mcp add --transport http quickstart http://127.0.0.1:" in said
