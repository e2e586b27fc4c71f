"""`make run`: something to see, and it stays up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shared import ROOT


@pytest.mark.slow
def test_the_demo_serves_searches_calls_says_how_to_add_it_and_stays_up(tmp_path: Path) -> None:
    environment = {**os.environ, "PORTICO_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "examples.demo"],
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
    assert "time__get_current_time\n" in said
    assert '"timezone": "Asia/Tokyo"' in said
    command = Path(sys.executable).parent / "portico"
    assert f"claude mcp add portico -- {command} serve --config {ROOT}" in said
    assert f'{{"mcpServers": {{"portico": {{"command": "{command}"' in said
    assert f"{command.relative_to(ROOT)} status --watch" in said
    assert "claude mcp add --transport http portico http://127.0.0.1:" in said
