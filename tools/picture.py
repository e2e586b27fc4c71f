"""Draws docs/terminal.svg: what a few commands print, run just now.

.venv/bin/python tools/picture.py
"""

import os
import shlex
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "terminal.svg"
COMMANDS = (
    "portico inspect examples/quickstart.py",
    """portico call examples/quickstart.py forecast '{"city": "Oslo", "days": 2}'""",
    """portico call examples/quickstart.py forecast '{"town": "Oslo"}'""",
)
COLUMNS = 100
LINE, CHARACTER, MARGIN = 19, 8.4, 18


def main() -> None:
    """Run the commands and draw what they said."""
    lines: list[tuple[str, str]] = []
    for command in COMMANDS:
        lines += [("command", f"$ {command}"), *(("said", line) for line in _run(command))]
        lines.append(("said", ""))
    TARGET.write_text(_svg(lines[:-1]), encoding="utf-8")
    print(TARGET.relative_to(ROOT))


def _run(command: str) -> list[str]:
    words = [sys.executable, "-m", *shlex.split(command)]
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
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
