"""A config may lie wherever a file can."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.running import bad
from tests.serve.gateway import Pipes, command, written
from tests.support.running import WAIT_S


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is text")
def test_a_config_whose_name_is_no_text_is_served_and_shown(tmp_path: Path) -> None:
    home = tmp_path / "home"
    config = written(tmp_path / "plain.toml", {"web": command(bad("stdio", "plain"))})
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.toml"))
    shutil.copy(config, odd)
    with Pipes(home, odd) as gateway:
        gateway.initialize()
        assert gateway.status().keys() == {"web"}
        ran = subprocess.run(
            [sys.executable, "-m", "portico", "status"],
            env={**os.environ, "PORTICO_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert ran.returncode == 0, ran
        assert "caf\\udce9.toml" in ran.stdout
