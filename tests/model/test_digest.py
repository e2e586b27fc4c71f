"""The digest comes from the private module of CPython, or else from `hashlib`."""

import hashlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import portico

DIGEST = """
from portico.model.digest import blake2b
print(blake2b(b"text", key=b"secret", digest_size=8, person=b"portico").hexdigest())
"""
# On CPython `hashlib` has BLAKE2b of the same module, so it is imported before that is blocked.
BLOCKED = "import hashlib, sys; sys.modules['_blake2'] = None\n"
SAME = "assert blake2b is hashlib.blake2b\n"


def ran(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_python_without_the_private_module_computes_the_same_digests() -> None:
    whole = hashlib.blake2b(b"text", key=b"secret", digest_size=8, person=b"portico")
    assert ran(DIGEST) == ran(BLOCKED + DIGEST + SAME) == whole.hexdigest()


def test_the_digest_does_not_import_hashlib_where_it_need_not() -> None:
    if importlib.util.find_spec("_blake2") is None:
        pytest.skip("this Python has no _blake2")
    assert ran("import portico.model.digest, sys; print('hashlib' in sys.modules)") == "False"


def test_only_one_module_imports_the_digest() -> None:
    folder = Path(portico.__file__).parent
    imports = re.compile(r"^\s*(from|import) (_blake2|hashlib import blake2b)", re.MULTILINE)
    found = [path for path in folder.rglob("*.py") if imports.search(path.read_text())]
    assert found == [folder / "model" / "digest.py"]
