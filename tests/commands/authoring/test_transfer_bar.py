"""The progress bar of push and pull: on a terminal only, and gone in the end."""

import os
import pty
import subprocess
import threading
from pathlib import Path

import pytest

from tests.library.distribution.own_registry import (
    Answer,
    OwnRegistry,
    Seen,
    layer_of,
    own_registry,
)
from tests.library.distribution.rigs import WAIT_S, Home

pytestmark = pytest.mark.slow
LAYER = layer_of(4_000_000)


def on_terminal(home: Home, *argv: str) -> tuple[int, str, str]:
    """Run a command whose standard error is a terminal; return code, output and the terminal."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                return
            shown.append(piece)

    env = {**home.env, "TERM": "xterm", "COLUMNS": "120"}
    child = subprocess.Popen(
        home.command(*argv), env=env, stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    reader = threading.Thread(target=read)
    reader.start()
    out = child.communicate(timeout=WAIT_S)[0]
    reader.join()
    os.close(ours)
    return child.returncode, out, b"".join(shown).decode()


def half_way(registry: OwnRegistry) -> None:
    """Cut the first download in the middle, so that there is a second request."""
    cuts = iter([2_000_000])

    def hook(seen: Seen) -> Answer | None:
        is_cut = "/blobs/" in seen.path and (cut := next(cuts, 0))
        return Answer(200, LAYER, cut=cut) if is_cut else None

    registry.hook = hook


def test_a_pull_shows_a_bar_on_a_terminal_only(tmp_path: Path) -> None:
    with own_registry() as registry:
        registry.add("team/calc", "1", LAYER)
        home = Home(tmp_path / "home").write(registry.host)
        half_way(registry)
        code, out, terminal = on_terminal(home, "pull", f"oci://{registry.host}/team/calc:1")
        assert (code, out.count("pulled oci://")) == (0, 1)
        assert "team/calc" in terminal
        assert "4.0 MB" in terminal
        other = Home(tmp_path / "other").write(registry.host)
        done = other.portico("pull", f"oci://{registry.host}/team/calc:1")
        assert (done.returncode, done.stderr) == (0, "")
