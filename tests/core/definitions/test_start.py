"""A server of definition files starts fast: modules that it must not import."""

import subprocess
import sys

import pytest

HEAVY = ("jsonschema_rs", "difflib", "dataclasses", "pydantic", "urllib.parse", "pathlib")


@pytest.mark.parametrize("module", ["load", "schema", "header_params", "templates", "derive"])
def test_importing_brings_nothing_heavy(module: str) -> None:
    code = (
        "import sys, asyncio, msgspec\n"
        "before = set(sys.modules)\n"
        f"import portico.core.definitions.{module}\n"
        f"print([name for name in {HEAVY!r} if name in set(sys.modules) - before])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[]"


def test_loading_tools_brings_nothing_heavy() -> None:
    code = (
        "import sys, asyncio, msgspec\n"
        "before = set(sys.modules)\n"
        "from portico.core.definitions.load import load_tools\n"
        "schema = {'type': 'object', '$ref': '#/$defs/d', '$defs': {'d': {'items': {}}}}\n"
        "load_tools([{'name': 't', 'inputSchema': schema}])\n"
        f"print([name for name in {HEAVY!r} if name in set(sys.modules) - before])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[]"
