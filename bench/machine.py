"""Where and with what a run was made."""

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.workload import ROOT

NODE = ROOT / ".tools" / "bin" / "node"
TYPESCRIPT_SDK = ROOT / ".tools" / "node_modules" / "@modelcontextprotocol" / "sdk"

_PACKAGES = ("portico", "msgspec", "uvicorn", "uvloop", "httptools", "mcp")


def facts() -> str:
    """One paragraph: when, on which machine, how busy it was, and which versions."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    load = os.getloadavg()[0]
    return (
        f"{now}; {os.cpu_count()} cores of {_cpu()}, Linux {platform.release()}, load average "
        f"{load:.1f} before; Python {platform.python_version()}, {', '.join(_versions())}."
    )


def _cpu() -> str:
    match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return match[1] if match else platform.machine()


def _versions() -> list[str]:
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    if NODE.exists():
        shown = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=True)
        found.append(f"Node {shown.stdout.strip()}")
    if TYPESCRIPT_SDK.exists():
        found.append(f"TypeScript SDK {typescript_sdk_version()}")
    return found


def typescript_sdk_version() -> str:
    """The version of the installed TypeScript SDK."""
    package = json.loads((TYPESCRIPT_SDK / "package.json").read_text(encoding="utf-8"))
    return str(package["version"])
