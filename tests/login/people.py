"""People who log in with the real command, through a browser of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.running import WAIT_S
from tests.support.shared import ROOT
from tests.wrap.faults import portico_command

BROWSER = ROOT / "tests" / "support" / "browser.py"
NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"}


class Person:
    """Somebody with a home folder for Portico, at a browser."""

    def __init__(self, folder: Path, name: str = "ann") -> None:
        self.home = folder / "home"
        self.desk = folder / "desk"
        self.desk.mkdir(exist_ok=True)
        self.name = name

    def environment(self, how: str = "allow") -> dict[str, str]:
        """The variables of a command; `how` is what the person does at the page."""
        browser = f"{sys.executable} {BROWSER} {self.desk} {self.name} {how}"
        proxies = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        return {**proxies, **NO_KEYRING, "BROWSER": browser, "COLUMNS": "200"}

    def run(
        self, *words: str, how: str = "allow", given: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of Portico to its end."""
        return subprocess.run(
            portico_command(self.home, *words),
            env={**self.environment(how), **(env or {})},
            input=given,
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            check=False,
        )

    def log_in(self, target: str, *options: str, how: str = "allow") -> dict[str, Any]:
        """Log in; the command must succeed."""
        done = self.run("servers", "login", target, "--json", *options, how=how)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def log_out(self, target: str, *options: str) -> dict[str, Any]:
        """Log out; the command must succeed."""
        done = self.run("servers", "logout", target, "--json", *options)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def call(self, target: str, tool: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Call a tool of a server at a URL, or in the config."""
        return self.run("call", target, tool, *options)

    def page(self) -> str:
        """The page at which the browser ended."""
        return (self.desk / "page.html").read_text()

    def config(self, *servers: str, **tables: str) -> Path:
        """Write a config: each server is `NAME URL` with further lines."""
        path = self.home / "config" / "portico.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = []
        for one in servers:
            name, url, *more = one.split(" ", 2)
            lines += [f"[servers.{name}]", f'url = "{url}"', *more]
        path.write_text("\n".join([*lines, *(f"[{key}]\n{text}" for key, text in tables.items())]))
        return path
