"""The transport of a bundle: as composed, or another that is named at the start."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.authoring.composing import call, composed, done, stranger
from tests.support.running import WAIT_S, free_port
from tests.wrap.standing import until


def test_the_transport_is_the_composed_one_unless_another_is_named(folder: Path) -> None:
    port = free_port()
    bundle = composed(folder, folder / "calc.py", "-t", f"http:{port}")
    command = [sys.executable, "-m", "portico", "run", str(bundle)]
    environ = {**os.environ, "PORTICO_HOME": str(folder.parent / "home")}
    serving = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL)
    try:
        until(lambda: _is_listening(port), "it does not listen")
        assert call(folder, f"http://127.0.0.1:{port}/mcp", "add", a=1, b=2) == "3"
        assert call(folder, " ".join([*command, "--stdio"]), "add", a=1, b=2) == "3"
    finally:
        serving.terminate()
        serving.wait(WAIT_S)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_composed_transport_goes_along(folder: Path, tmp_path: Path) -> None:
    (folder / "own.py").write_text(
        "import os\nasync def serve(endpoint, address, stop, drain_s):\n"
        f"    open({str(tmp_path / 'served')!r}, 'w').write(os.path.basename(__file__))\n"
    )
    bundle = composed(folder, folder / "calc.py", "--transport", folder / "own.py")
    found = json.loads(done(folder, "inspect", bundle, "--json"))
    assert found["transport"] == "parts/0/own.py"
    assert [one["path"] for one in found["wishes"]] == ["calc", "transport"]
    away = stranger(folder)
    done(away, "approve", "-y", away / "one.portico")
    done(away, "run", away / "one.portico")
    assert (tmp_path / "served").read_text() == "own.py"
