"""Run the few tests that failed beside others once more, alone: the second part of `make test`.

Thousands of tests with real processes share two cores. A test that passes alone depends on timing:
it is named at the end, so that it gets fixed, and does not hide that everything else passed.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAST_FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
MAX_TESTS = 3
"""More failures than these are not an accident."""
_GROUP = re.compile(r"@[\w-]+$")
"""The group that xdist appends to the name of a test."""


def main() -> int:
    """Run the tests that failed last; return 0 if they are few, and pass now."""
    failed = failed_tests(LAST_FAILED)
    if not 0 < len(failed) <= MAX_TESTS:
        return 1
    names = "\n  ".join(failed)
    write(f"\nfailed beside other tests, run again alone:\n  {names}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *failed]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0:
        write(f"passed only alone; the test depends on timing and needs a fix:\n  {names}")
    return code


def failed_tests(path: Path) -> list[str]:
    """Return the names of the tests that failed in the last run, without their groups."""
    if not path.exists():
        return []
    return [_GROUP.sub("", name) for name in json.loads(path.read_text())]


def write(text: str) -> None:
    """Print a text before the output of what comes next."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
