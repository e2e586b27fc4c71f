"""Real registries and tools of others for the tests of push and pull, on this machine only."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.shared import ROOT, unavailable

USER, PASSWORD = "ada", "s3cret-canary"
_HTPASSWD = f"{USER}:$2b$04$zif6Jpvvti26Vi92SU/jV.7T9OVLGzkkHRIvYsS5FYArPc8pdMtem\n"
WAIT_S = 60.0
COSIGN = ROOT / ".cosign" / "usr" / "bin" / "cosign"
WASM = b"\0asm\x0d\0\x01\0"
"""The first bytes of a component."""


def component(path: Path, size: int = 100_000, seed: bytes = b"a") -> Path:
    """Write a file that begins like a component."""
    path.write_bytes(WASM + (seed * size)[: size - len(WASM)])
    return path


def program(name: str) -> str:
    """Return the path of an installed program; without it the test is skipped, but not on CI."""
    found = shutil.which(name)
    if found is None:
        unavailable(f"{name} is not installed")
    assert found is not None
    return found


def cosign() -> str:
    """Return the path of cosign, which `make cosign` unpacks."""
    if not COSIGN.exists():
        unavailable("cosign is not there: run `make cosign`")
    return str(COSIGN)


class DockerRegistry:
    """A running docker-registry."""

    def __init__(self, host: str, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.login: tuple[str, str] | None = None

    def blob(self, digest: str) -> Path:
        """Return the file of a blob."""
        hexes = digest.removeprefix("sha256:")
        root = self.folder / "data" / "docker" / "registry" / "v2" / "blobs" / "sha256"
        return root / hexes[:2] / hexes / "data"


@contextmanager
def docker_registry(
    folder: Path, *, login: bool = False, port: int = 0
) -> Iterator[DockerRegistry]:
    """A real registry, with or without a login."""
    command = program("docker-registry")
    folder.mkdir(exist_ok=True)
    auth = ""
    if login:
        (folder / "htpasswd").write_text(_HTPASSWD)
        auth = f"auth:\n  htpasswd:\n    realm: tests\n    path: {folder}/htpasswd\n"
    config = folder / "registry.yml"
    config.write_text(
        "version: 0.1\nlog:\n  accesslog:\n    disabled: true\n"
        f"storage:\n  filesystem:\n    rootdirectory: {folder}/data\n"
        f"http:\n  addr: 127.0.0.1:{port}\n  secret: tests\n{auth}"
    )
    child = subprocess.Popen(
        [command, "serve", str(config)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert child.stderr is not None
    try:
        host = ""
        for line in child.stderr:
            if found := re.search(r"listening on (127\.0\.0\.1:\d+)", line):
                host = found[1]
                break
        assert host, "the registry did not start"
        threading.Thread(target=child.stderr.read, daemon=True).start()
        yield DockerRegistry(host, folder)
    finally:
        child.kill()
        child.wait()
        child.stderr.close()


class Home:
    """A user's folders, and the `portico` command that uses them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.config = folder / "portico.toml"
        self.lock = folder / "portico.lock"
        self.cache = folder / "home" / "cache" / "registry"
        self.env = {
            **os.environ,
            "PORTICO_HOME": str(folder / "home"),
            "DOCKER_CONFIG": str(folder / "docker"),
            "HOME": str(folder),
        }
        self.extra = ""

    def write(self, *hosts: str, trust: str = "", more: str = "") -> "Home":
        """Write a config with these registries of this machine; the first is the default."""
        tables = []
        for number, host in enumerate(hosts):
            default = "default = true\n" if not number else ""
            tables.append(
                f'[registries.r{number}]\nurl = "http://{host}"\ninsecure = true\n{default}{more}'
            )
        self.config.write_text("\n".join(tables) + (trust or '\n[trust]\nunsigned = ["*"]\n'))
        return self

    def log_in(self, host: str, user: str = USER, password: str = PASSWORD) -> None:
        """Write the credentials of a host to Docker's config."""
        import base64

        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.docker({"auths": {host: {"auth": pair}}})

    def docker(self, config: Mapping[str, Any]) -> None:
        """Write Docker's config."""
        (self.folder / "docker").mkdir(exist_ok=True)
        (self.folder / "docker" / "config.json").write_text(json.dumps(config))

    def command(self, *argv: str | Path) -> list[str]:
        """Return the command line of a Portico command."""
        return [sys.executable, "-m", "portico", *map(str, argv), "--config", str(self.config)]

    def portico(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a Portico command to its end."""
        return run(self.command(*argv), self.env)

    def ok(self, *argv: str | Path) -> Any:
        """Run a command that must succeed; return its JSON."""
        done = self.portico(*argv, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def fails(self, *argv: str | Path) -> str:
        """Run a command that must fail with one message; return it."""
        done = self.portico(*argv)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def locked(self) -> dict[str, Any]:
        """Return the components of the lock file."""
        found: dict[str, Any] = json.loads(self.lock.read_text())["components"]
        return found

    def blobs(self) -> set[str]:
        """Return the digests in the cache."""
        folder = self.cache / "blobs"
        return {one.name for one in folder.iterdir()} if folder.exists() else set()


def run(
    command: Sequence[str], env: Mapping[str, str], **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=WAIT_S * 2, check=False, **more
    )
