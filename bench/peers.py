"""The proxies that are measured beside ours: each in a folder of its own, made when it is needed.

`python -m bench.peers` makes them all, `rm -r .bench` removes them.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.machine import NODE
from bench.workload import ROOT

FOLDER = ROOT / ".bench"
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Peer:
    """A program of others, at one version."""

    name: str
    version: str
    program: str
    """Where its folder has what is run."""
    beside: tuple[str, ...] = ()
    """Further pinned packages that make up most of its cost."""
    npm: bool = False

    @property
    def folder(self) -> Path:
        """Another version is another folder."""
        return FOLDER / f"{self.name}-{self.version}"

    @property
    def path(self) -> Path:
        """The command to run."""
        return self.folder / self.program

    @property
    def stamp(self) -> Path:
        """There once it is installed, and not before."""
        return self.folder / ".stamp"

    def commands(self) -> list[list[str]]:
        """The commands that install it."""
        if self.npm:
            quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
            quiet.append("--fetch-retries=1")
            package = f"{self.name}@{self.version}"
            return [["npm", "install", "--prefix", str(self.folder), *quiet, package]]
        pip = [str(self.folder / "bin" / "pip"), "install", "--quiet", "--retries", "1"]
        package = f"{self.name}=={self.version}"
        return [
            [sys.executable, "-m", "venv", str(self.folder)],
            [*pip, "--disable-pip-version-check", package, *self.beside],
        ]


MCP_PROXY = Peer("mcp-proxy", "0.13.0", "bin/mcp-proxy", ("mcp==1.30.0",))
FASTMCP = Peer("fastmcp", "4.1.2", "bin/python", ("mcp==2.3.0",))
COMPRESSOR = Peer("mcp-compressor", "0.38.2", "bin/mcp-compressor")
SUPERGATEWAY = Peer("supergateway", "4.0.0", "node_modules/supergateway/dist/index.js", npm=True)
PEERS = (MCP_PROXY, FASTMCP, COMPRESSOR, SUPERGATEWAY)


def node() -> str:
    """The Node of the tests, or the machine's."""
    return str(NODE) if NODE.exists() else shutil.which("node") or "node"


def install() -> list[str]:
    """Install the missing peers; return a line with the reason for each failure."""
    return [f"{peer.name} left out: {why}" for peer in PEERS if (why := _install(peer)) is not None]


def _install(peer: Peer) -> str | None:
    if peer.stamp.exists():
        return None
    shutil.rmtree(peer.folder, ignore_errors=True)
    peer.folder.mkdir(parents=True)
    print(f"installing {peer.name} {peer.version} into {peer.folder}", file=sys.stderr, flush=True)
    for command in peer.commands():
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=_PATIENCE_S)
        except subprocess.CalledProcessError as error:
            return _reason(error.stderr)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if not peer.path.exists():
        return f"its package has no {peer.program}"
    peer.stamp.touch()
    return None


def _reason(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode(errors="replace").split("\n")]
    errors = [line for line in lines if "err" in line.lower()]
    return (errors or [line for line in lines if line] or ["no reason given"])[0][:300]


if __name__ == "__main__":
    found = install()
    print("\n".join(found) or f"all peers are in {FOLDER}")
    sys.exit(1 if found else 0)
