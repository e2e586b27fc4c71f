"""What Portico keeps on disk is for its user alone, whatever the umask and whoever was there."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from portico.edge.windows.control import send_command, socket_names
from tests.rigs.running import shelf
from tests.serve.gateway import Pipes, command, written
from tests.support.running import WAIT_S
from tests.wrap.faults import until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    words = tmp_path / "tools"
    words.write_text("lists one")
    return written(tmp_path / "p.toml", {"shelf": command(shelf(words))})


def portico(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "portico", *words],
        env={**os.environ, "PORTICO_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )


def test_nothing_it_makes_is_open_to_others_though_the_umask_says_so(
    tmp_path: Path, config: Path
) -> None:
    home = tmp_path / "new" / "home"
    old = os.umask(0)
    try:
        with Pipes(home, config) as pipes:
            pipes.initialize()
            answer = pipes.ask("tools/call", {"name": "shelf__one", "arguments": {}})
            made = [home.parent, home, *home.rglob("*")]
            modes = {str(path.relative_to(tmp_path)): path.lstat().st_mode for path in made}
        added = portico(tmp_path / "other" / "home", "servers", "add", "x", "--", "true")
    finally:
        os.umask(old)

    assert "result" in answer
    assert added.returncode == 0, added.stderr
    made = [tmp_path / "other", *(tmp_path / "other").rglob("*")]
    modes |= {str(path.relative_to(tmp_path)): path.lstat().st_mode for path in made}
    assert len(modes) > 12
    assert {name: oct(mode) for name, mode in modes.items() if stat.S_IMODE(mode) & 0o077} == {}


@pytest.mark.parametrize("server", [["shelf"], {"shelf": 1}, 1, "nobody"])
def test_its_user_who_asks_for_nonsense_is_told_so(
    tmp_path: Path, config: Path, server: object
) -> None:
    with Pipes(tmp_path / "home", config) as pipes:
        pipes.initialize()
        folder = tmp_path / "home" / "state" / "control"
        assert until(lambda: socket_names(str(folder)))
        (name,) = socket_names(str(folder))
        answer = send_command(str(folder), name, "refresh", WAIT_S, server=server)

    assert answer == {"ok": False, "error": f"there is no server {server!r} here"}
    assert "Traceback" not in pipes.stderr()


_LISTENS = """
import os, socket, sys
os.setuid(65534)
listener = socket.socket(fileno=int(sys.argv[1]))
listener.listen()
print("listens", flush=True)
asker, _ = listener.accept()
heard = asker.recv(100)
print("heard", heard, flush=True)
if heard:
    asker.sendall(b'{"ok": true, "pid": 1, "config": "planted", "url": "", "servers": []}\\n')
"""


@as_root
def test_a_command_says_nothing_to_somebody_elses_process(tmp_path: Path, config: Path) -> None:
    folder = tmp_path / "home" / "state" / "control"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(folder / "1.sock"))
        stranger = subprocess.Popen(
            [sys.executable, "-c", _LISTENS, str(planted.fileno())],
            stdout=subprocess.PIPE,
            pass_fds=[planted.fileno()],
        )
        assert stranger.stdout is not None
        with stranger:
            try:
                assert stranger.stdout.readline() == b"listens\n"
                said = portico(tmp_path / "home", "status", "--config", str(config), "--json")
                heard = stranger.stdout.readline()
            finally:
                stranger.kill()

    assert heard == b"heard b''\n"
    assert "planted" not in said.stdout
