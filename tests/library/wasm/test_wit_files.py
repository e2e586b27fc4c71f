"""Our WIT files say what wasmcp's packages say."""

import pytest

from tests.library.wasm.building import WIT
from tests.library.wasm.wit_text import facts_of, package_text
from tests.support.shared import shared

# Its sessions name wasi:keyvalue, whose draft no component of ours needs.
PACKAGES = [
    ("v20251125/deps/mcp", "mcp-v20251125.json", ()),
    ("v20250618/deps/mcp", "mcp-v20250618.json", ()),
    ("beta/deps/protocol", "protocol-0.1.0-beta.2.json", ()),
    ("beta/deps/server", "server-0.1.0-beta.2.json", ("sessions",)),
    ("v20251125/deps/keyvalue", "keyvalue.json", ()),
]


@pytest.mark.parametrize("folder, file, without", PACKAGES)
def test_a_wit_file_matches_the_facts(folder: str, file: str, without: tuple[str, ...]) -> None:
    facts = facts_of(shared("schemas/wasmcp"), file)
    assert (WIT / folder / "package.wit").read_text() == package_text(facts, without=without)


@pytest.mark.parametrize("folder, version", [("v20251125", "0.1.1"), ("v20250618", "0.1.0")])
def test_the_types_of_tokens_match_the_facts(folder: str, version: str) -> None:
    facts = facts_of(shared("schemas/wasmcp"), "auth.json")
    kept = {name: facts["interfaces"][name] for name in ("types", "helpers")}
    text = package_text({"package": f"wasmcp:auth@{version}", "interfaces": kept})
    assert (WIT / folder / "deps" / "auth" / "package.wit").read_text() == text
