"""Draws docs/terminal.svg: what a few commands print, run just now.

.venv/bin/python tools/picture.py
"""

import os
import shlex
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "terminal.svg"
COMMANDS = (
    "portico servers add time mcp-server-time",
    "portico servers add git mcp-server-git",
    """portico search "what time is it in Tokyo" --limit 2""",
    """portico call time__get_current_time '{"timezone": "Asia/Tokyo"}'""",
    """portico call time__get_current_time '{"city": "Tokyo"}'""",
    "portico status",
)
COLUMNS = 100
LINE, CHARACTER, MARGIN = 19, 8.4, 18


def main() -> None:
    """Run the commands and draw what they said."""
    lines: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as home:
        for command in COMMANDS:
            shown = (
                line.replace(f"{home}/config", "~/.config/portico") for line in _run(command, home)
            )
            said = [("said", _cut(line)) for line in shown]
            lines += [("command", f"$ {command}"), *said, ("said", "")]
    TARGET.write_text(_svg(lines[:-1]), encoding="utf-8")
    print(TARGET.relative_to(ROOT))


def _run(command: str, home: str) -> list[str]:
    words = [sys.executable, "-m", *shlex.split(command)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1", "PATH": path}
    environment["PORTICO_HOME"] = home
    ran = subprocess.run(
        words,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ran.stdout.rstrip().splitlines()


def _cut(line: str) -> str:
    return line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…"


def _svg(lines: list[tuple[str, str]]) -> str:
    width = round(COLUMNS * CHARACTER + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    texts = [
        f'<text class="{kind}" x="{MARGIN}" y="{MARGIN + row * LINE - 5}">{escape(line)}</text>'
        for row, (kind, line) in enumerate(lines, start=1)
        if line
    ]
    style = (
        "text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre;fill:#d4d4d4}"
        ".command{fill:#7ee787;font-weight:bold}"
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="portico in a terminal">',
            f"<style>{style}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#161b22"/>',
            *texts,
            "</svg>\n",
        )
    )


if __name__ == "__main__":
    main()
