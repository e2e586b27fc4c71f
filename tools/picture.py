"""Draws docs/pictures/terminal.svg: a gateway over four real servers, and what it answers, run now.

.venv/bin/python -m tools.picture
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "pictures" / "terminal.svg"
TOOLS = ROOT / ".tools"
ADDED = (
    "portico servers add time mcp-server-time",
    "portico servers add git mcp-server-git",
    "portico servers add memory mcp-server-memory",
    "portico servers add everything mcp-server-everything",
)
GATEWAY = "portico serve --http 8000"
ASKED = (
    """portico search "what time is it in Tokyo" --limit 2""",
    """portico call time__get_current_time '{"timezone": "Asia/Tokyo"}'""",
    "portico status",
)
COLUMNS = 114
LINE, CHARACTER, MARGIN = 19, 8.4, 18
READY_S = 60.0


def main() -> None:
    """Run the commands and draw what they print."""
    with tempfile.TemporaryDirectory() as home:
        environment = _environment(home)
        lines = [line for command in ADDED for line in _shown(command, environment)]
        log = Path(home) / "serve.log"
        with log.open("w") as said:
            gateway = subprocess.Popen(_argv(GATEWAY), cwd=ROOT, env=environment, stderr=said)
        try:
            _wait(environment)
            lines += ["", f"$ {GATEWAY} &", *log.read_text().splitlines()]
            for command in ASKED:
                lines += ["", *_shown(command, environment)]
        finally:
            gateway.terminate()
            gateway.wait()
    folders = {f"{home}/config": "~/.config/portico", f"{home}/state": "~/.local/state/portico"}
    for real, usual in folders.items():
        lines = [line.replace(real, usual) for line in lines]
    TARGET.write_text(drawn([cut(line) for line in lines]), encoding="utf-8")
    print(TARGET.relative_to(ROOT))


def _environment(home: str) -> dict[str, str]:
    places = (Path(sys.executable).parent, TOOLS / "bin", TOOLS / "node_modules" / ".bin")
    path = os.pathsep.join([*map(str, places), os.environ["PATH"]])
    own = {"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "PATH": path, "PORTICO_HOME": home}
    return {**os.environ, **own}


def _argv(command: str) -> list[str]:
    return [sys.executable, "-m", *shlex.split(command)]


def _output(command: str, environment: Mapping[str, str]) -> str:
    ran = subprocess.run(
        _argv(command), cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout


def _shown(command: str, environment: Mapping[str, str]) -> list[str]:
    return [f"$ {command}", *_output(command, environment).rstrip().splitlines()]


def _wait(environment: Mapping[str, str]) -> None:
    """Until every server has listed its tools."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        told = json.loads(_output("portico status --json", environment))
        servers = [server for one in told for server in one.get("servers", [])]
        if len(servers) == len(ADDED) and not any(server["pending"] for server in servers):
            return
        time.sleep(0.1)
    raise SystemExit("a server did not list its tools in time")


def cut(line: str) -> str:
    """Return a line that fits into the picture."""
    return line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"


def drawn(lines: list[str]) -> str:
    """Return the picture of a terminal that shows these lines."""
    width = round(COLUMNS * CHARACTER + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    texts = [
        f'<text class="{"command" if line.startswith("$ ") else "said"}" '
        f'x="{MARGIN}" y="{MARGIN + row * LINE - 5}">{escape(line)}</text>'
        for row, line in enumerate(lines, start=1)
        if line
    ]
    style = (
        "text{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:14px;white-space:pre;"
        "fill:#d4d4d4}"
        ".command{fill:#7ee787;font-weight:bold}"
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" xml:space="preserve" '
            'aria-label="portico in a terminal">',
            f"<style>{style}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>',
            *texts,
            "</svg>\n",
        )
    )


if __name__ == "__main__":
    main()
