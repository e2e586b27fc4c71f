"""Starting fast is a feature: what reading a good config must not import."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("pathlib", "rich", "difflib", "asyncio", "argparse", "urllib.parse", "fnmatch", "keyring")
OURS = (
    "portico.core.documents.places",
    "portico.core.documents.edit",
    "portico.core.documents.json_places",
)


@pytest.mark.parametrize(
    ("name", "text", "other"),
    [
        ("a.toml", '[servers.a]\ncommand = "${X:-x}"\ntools = { allow = ["x"] }\n', "json"),
        ("a.json", '{"mcpServers": {"a b": {"command": "x",}}} // yes', "tomllib"),
    ],
)
def test_reading_brings_only_what_it_needs(
    name: str, text: str, other: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    code = (
        "import sys, msgspec\nbefore = set(sys.modules)\n"
        f"from portico.core.config.read import read\nread({str(path)!r})\n"
        f"print(*sorted(set({(*HEAVY, *OURS, other)!r}) & (set(sys.modules) - before)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
