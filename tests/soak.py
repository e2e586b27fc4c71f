"""Run the long form of every test marked `soak` and keep the result: `make soak`."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "develop" / "soak.md"

_HEAD = """\
# Soak

The last run of `make soak`: the long form of each test whose short form is part of `make test`.
"""


def main() -> int:
    """Run the tests, write the page, and return pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "soak", f"--junit-xml={results}"]
        command += ["-o", "junit_family=xunit1", "-o", "timeout=1800", *sys.argv[1:]]
        began = time.monotonic()
        code = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PORTICO_SOAK": "1"}, check=False
        ).returncode
        took = time.monotonic() - began
        if results.exists():
            PAGE.write_text(page(ET.parse(results).getroot(), took))
    return code


def page(results: ET.Element, took_s: float) -> str:
    """The page of one run, a row a test."""
    rows = [_row(case) for case in results.iter("testcase")]
    failed = sum(row[1] != "passed" for row in rows)
    today = time.strftime("%Y-%m-%d")
    total = f"{today}: {len(rows)} tests, {failed} not passed, {took_s / 60:.0f} minutes."
    table = ["| test | result | seconds | what it did |", "|---|---|---|---|"]
    table += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([_HEAD, total, "", *table, ""])


def _row(case: ET.Element) -> tuple[str, str, str, str]:
    name = f"`{case.get('file', '')}::{case.get('name', '')}`"
    outcome = next(
        (tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), ""
    )
    properties = case.iter("property")
    done = "; ".join(str(one.get("value")) for one in properties if one.get("name") == "soak")
    return name, outcome or "passed", f"{float(case.get('time', 0)):.0f}", done


if __name__ == "__main__":
    sys.exit(main())
