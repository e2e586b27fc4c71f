"""A config that somebody else could have written, while a gateway runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.rigs.running import shelf
from tests.serve.gateway import Pipes, command, written
from tests.support.running import WAIT_S
from tests.wrap.faults import until


def _entries(folder: Path, name: str) -> dict[str, dict[str, object]]:
    words = folder / "words"
    words.write_text("one")
    return {name: command(shelf(words))}


def test_a_config_that_everybody_can_write_to_is_not_reloaded_until_that_is_fixed(
    tmp_path: Path,
) -> None:
    config = written(tmp_path / "p.toml", _entries(tmp_path, "old"))
    with Pipes(tmp_path / "home", config) as pipes:
        pipes.initialize()
        new = written(tmp_path / "new.toml", _entries(tmp_path, "new"))
        new.chmod(0o666)
        new.replace(config)
        assert until(lambda: "every user can write to it" in pipes.stderr())
        assert list(pipes.status()) == ["old"]
        config.chmod(0o600)
        assert until(lambda: list(pipes.status()) == ["new"])


def test_a_config_that_a_group_can_write_to_is_warned_of(tmp_path: Path) -> None:
    config = written(tmp_path / "p.toml", _entries(tmp_path, "one"))
    config.chmod(0o664)
    home = tmp_path / "home"
    with Pipes(home, config) as pipes:
        pipes.initialize()
        assert until(lambda: "run `chmod g-w " in pipes.stderr())
        assert list(pipes.status()) == ["one"]
    done = subprocess.run(
        [sys.executable, "-m", "portico", "status", "--json", "--config", str(config)],
        env={**os.environ, "PORTICO_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert "can write to it (mode 0664)" in json.loads(done.stdout)[0]["warnings"][0]
