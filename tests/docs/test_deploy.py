"""The files of `docs/use/deploy.md` are accepted by the programs that read them."""

import json
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import blocks
from tests.support.shared import unavailable

PAGE = "docs/use/deploy.md"


def file_of(note: str) -> str:
    (found,) = (block.text for block in blocks(PAGE) if block.note == note)
    return found


def test_the_unit_is_valid(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        unavailable("systemd-analyze is not installed")
    program = Path(sys.executable).with_name("portico")
    unit = tmp_path / "portico.service"
    unit.write_text(file_of("systemd").replace("%h/.local/bin/portico", str(program)))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_unit_agent_and_container_start_the_same_command() -> None:
    agent = plistlib.loads(file_of("launchd").encode())["ProgramArguments"]
    (start,) = (line for line in file_of("systemd").splitlines() if line.startswith("ExecStart="))
    (entry,) = (line for line in file_of("container").splitlines() if "ENTRYPOINT" in line)
    container = json.loads(entry.removeprefix("ENTRYPOINT "))
    assert agent[1:] == start.split()[1:]
    assert container[1:-1] == agent[1:-1]
    assert container[-1].split(":")[1] == agent[-1].split(":")[1]
