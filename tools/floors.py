"""Print constraints.txt without our own dependencies, so that a resolver can choose their lowest.

`make lowest` installs with it: the tools of the tests stay as they are pinned.
"""

import re
import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parent.parent


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def main() -> None:
    """Print the constraints that are left."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = [
        *project["dependencies"],
        *(each for key in extras if key != "dev" for each in extras[key]),
    ]
    names = set(map(_name, ours))
    for line in (_ROOT / "constraints.txt").read_text().splitlines():
        if _name(line) not in names:
            sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
