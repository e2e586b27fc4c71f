"""`portico components` and `portico profiles`: names in the config, written in place."""

import json
from pathlib import Path

import pytest

from portico.commands.authoring.names_file import RESERVED
from portico.commands.cli.main import COMMANDS
from tests.commands.authoring.composing import GUARD, RUN
from tests.gateway.observed import portico
from tests.library.wasm.building import wat

CALC = '''
from portico import Server

server = Server("calc")


@server.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b
'''


HANDLER = """(component
  (instance $i)
  (export "portico:mcp/handler@0.1.0" (instance $i)))"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "calc.py").write_text(CALC)
    (tmp_path / "guard.py").write_text("def on_call(call, next):\n    return next(call)\n")
    return tmp_path


def done(folder: Path, *words: str, code: int = 0) -> str:
    ran = portico(folder, *words)
    assert ran.returncode == code, ran.stderr + ran.stdout
    return ran.stdout + ran.stderr


def config(folder: Path) -> str:
    return (folder / "home/config/portico.toml").read_text()


def test_an_alias_and_a_profile_are_added_run_and_removed(folder: Path) -> None:
    said = done(folder, "components", "add", "sums", f"{folder}/calc.py")
    assert "sums is " in said
    assert "try `portico run sums`" in said
    done(folder, "components", "add", "guard", f"{folder}/guard.py")
    done(folder, "profiles", "add", "core", "guard")
    done(folder, "profiles", "add", "dev", "sums", f"two={folder}/calc.py", "--base", "core")
    assert json.loads(done(folder, "profiles", "list", "--json")) == {
        "core": {"base": "", "components": ["guard"]},
        "dev": {"base": "core", "components": ["sums", f"two={folder}/calc.py"]},
    }
    assert json.loads(done(folder, "components", "list", "--json"))["sums"] == {
        "path": f"{folder}/calc.py"
    }
    assert "core, sums, two=" in done(folder, "profiles", "list")
    done(folder, "compose", "-p", "core", "sums", "-o", f"{folder}/x.portico")
    assert done(folder, "call", f"{folder}/x.portico", "add", '{"a": 1, "b": 2}').strip() == "3"
    said = done(folder, "components", "remove", "sums", code=1)
    assert "profiles.dev has" in said
    assert "remove it there first" in said
    done(folder, "profiles", "remove", "dev")
    done(folder, "components", "remove", "sums")
    assert "sums" not in config(folder)
    assert "[profiles.core]" in config(folder)


def test_comments_of_the_config_stay(folder: Path) -> None:
    path = folder / "home/config/portico.toml"
    path.parent.mkdir(parents=True)
    text = "# mine\n[servers.one] # the first\ncommand = 'echo'\n"
    path.write_text(text)
    done(folder, "components", "add", "calc", f"{folder}/calc.py")
    done(folder, "profiles", "add", "dev", "calc")
    assert config(folder).startswith(text)
    done(folder, "profiles", "remove", "dev")
    done(folder, "components", "remove", "calc")
    assert config(folder).strip() == text.strip()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["components", "add", "run", "FILE"], "run is the name of a command of Portico; choose"),
        (["profiles", "add", "compose", "FILE"], "compose is the name of a command of Portico"),
        (["components", "add", "a__b", "FILE"], "is not a valid name; try"),
        (["components", "add", "calc", "FILE"], "there is a component calc already; remove it"),
        (["profiles", "add", "calc", "FILE"], "there is a component calc already; remove it"),
        (["components", "add", "dev", "FILE"], "there is a profile dev already; remove it first"),
        (["components", "add", "x", "none.py"], "none.py: no such file"),
        (["components", "add", "x", "https://a.example/mcp"], "a URL is a server, not a"),
        (["components", "add", "x", "calc"], "calc is a name of the config already; to give it"),
        (["profiles", "add", "x", "x"], "the profile x contains itself: x -> x; leave it out"),
        (["profiles", "add", "x", "calc", "--base", "den"], "there is no profile"),
        (["profiles", "add", "x", "nothing-like-it"], "is neither a file, an alias nor a command"),
        (["profiles", "remove", "den"], "there is no profile"),
        (["components", "remove", "calk"], "there is no component"),
    ],
)
def test_bad_names_change_nothing(folder: Path, words: list[str], why: str) -> None:
    done(folder, "components", "add", "calc", f"{folder}/calc.py")
    done(folder, "profiles", "add", "dev", "calc")
    before = config(folder)
    words = [str(folder / "calc.py") if one == "FILE" else one for one in words]
    assert why in done(folder, *words, code=1)
    assert config(folder) == before


def test_a_bundle_behind_an_alias_is_served_as_it_was_composed(folder: Path) -> None:
    (folder / "guard.py").write_text(GUARD)
    for name in ("guard", "calc"):
        done(folder, "compose", f"{folder}/{name}.py", "-o", f"{folder}/{name}.portico")
        done(folder, "components", "add", f"my-{name}", f"{folder}/{name}.portico")
    done(folder, "profiles", "add", "safe", "my-guard", "my-calc")
    sums = '{"a": 1, "b": 2}'
    assert done(folder, "call", f"{RUN} my-calc", "add", sums).strip() == "3"
    for both in ("my-guard my-calc", "safe", f"my-guard {folder}/calc.py"):
        assert done(folder, "call", f"{RUN} {both}", "add", sums).strip() == "41"
    said = done(folder, "run", "my-guard", code=1)
    assert "guard of my-guard: nothing is behind this middleware" in said


def test_sandboxed_files_have_aliases_with_their_grants(folder: Path) -> None:
    (folder / "sums.wasm").write_bytes(wat("(component)"))
    (folder / "guard.wasm").write_bytes(wat(HANDLER))
    assert "sums is " in done(folder, "components", "add", "sums", f"{folder}/sums.wasm")
    done(folder, "components", "add", "watch", f"{folder}/guard.wasm")
    done(folder, "profiles", "add", "dev", "watch", "sums", f"{folder}/sums.wasm")
    [*_, last] = json.loads(done(folder, "profiles", "list", "--json"))["dev"]["components"]
    assert last == f"{folder}/sums.wasm"
    path = folder / "home/config/portico.toml"
    path.write_text(f'{config(folder)}\n[components.sums.grants]\nhttp = "any"\n')
    said = done(folder, "compose", "watch", "sums", "-o", f"{folder}/x.portico")
    assert "sums: its grants of the config are not in the bundle; name those" in said
    found = json.loads(done(folder, "inspect", f"{folder}/x.portico", "--json"))["components"]
    assert [(one["name"], one.get("is_middleware")) for one in found] == [
        ("watch", True),
        ("sums", None),
    ]


def test_a_program_that_a_name_hides_is_reported(folder: Path) -> None:
    said = done(folder, "components", "add", "ls", f"{folder}/calc.py")
    assert "ls now means this, and no longer the program /" in said


def test_every_command_is_reserved() -> None:
    assert set(COMMANDS) - RESERVED == set()
