"""The client of registries by others, oras, in a process of its own: it changes the folder."""

import json
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import json, sys, oras.client
what, target, path, login, chunked, auth = json.loads(sys.argv[1])
auth = auth or ("basic" if login else "token")
client = oras.client.OrasClient(insecure=True, auth_backend=auth)
if login:
    client.auth.set_basic_auth(*login)
if what == "push":
    client.push(target=target, files=[path + ":application/wasm"], disable_path_validation=True,
                do_chunked=chunked, chunk_size=1_000_000, quiet=True)
else:
    print(json.dumps(client.pull(target=target, outdir=path)))
"""
_WAIT_S = 120.0


def oras_push(
    target: str, file: Path, login: tuple[str, str] | None, *, chunked: bool = False
) -> None:
    """Push a component, in one piece or in several."""
    _run("push", target, file.name, login, file.parent, chunked=chunked)


def oras_pull(target: str, folder: Path, login: tuple[str, str] | None) -> list[str]:
    """Pull a component; return its files."""
    folder.mkdir(exist_ok=True)
    found: list[str] = json.loads(_run("pull", target, str(folder), login, folder))
    return found


def oras_tries(what: str, target: str, file: Path, login: tuple[str, str] | None = None) -> bool:
    """Pull into the folder of a file, or push the file in chunks; False if that fails."""
    path = file.name if what == "push" else str(file.parent)
    try:
        _run(what, target, path, login, file.parent, chunked=True, auth="token")
    except AssertionError:
        return False
    return True


def _run(
    what: str,
    target: str,
    path: str,
    login: tuple[str, str] | None,
    folder: Path,
    *,
    chunked: bool = False,
    auth: str = "",
) -> str:
    argument = json.dumps([what, target, path, login, chunked, auth])
    command = [sys.executable, "-c", _SCRIPT, argument]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_WAIT_S, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
