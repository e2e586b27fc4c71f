"""`portico call` of a gateway's tool: the links of the gateway see the call, and little else."""

import sys
from pathlib import Path

import pytest

from tests.gateway.observed import portico, prepared

pytestmark = pytest.mark.slow

_COUNTING = """
def on_call(call, next):
    with open({path!r}, "a") as file:
        file.write(f"{{call.name}}\\n")
    return next(call)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    link = tmp_path / "counting.py"
    link.write_text(_COUNTING.format(path=str(tmp_path / "seen.txt")))
    prepared(tmp_path, f"[gateway]\nlinks = ['{link}']\n")
    return tmp_path


def called(home: Path, *words: str) -> tuple[int, str, str, list[str]]:
    """The exit code and output of a call, and the calls that the link has seen."""
    seen = home / "seen.txt"
    seen.unlink(missing_ok=True)
    ran = portico(home, "call", "--config", str(home / "portico.toml"), *words)
    return ran.returncode, ran.stdout, ran.stderr, seen.read_text().split()


def test_one_call_is_one_call_also_at_the_first_start(home: Path) -> None:
    for _ in range(2):
        code, out, _, seen = called(home, "maths__add", '{"a": 1, "b": 2}')
        assert (code, out, seen) == (0, "3\n", ["maths__add"])


def test_a_tool_that_fails_is_called_once(home: Path) -> None:
    code, _, err, seen = called(home, "maths__fail")
    assert (code, err, seen) == (1, "no \x1b[31mway\n", ["maths__fail"])


def test_single_arguments_need_one_look_at_the_schema(home: Path) -> None:
    called(home, "maths__add", '{"a": 1}')
    code, out, _, seen = called(home, "maths__add", "--arg", "a=1", "--arg", "b=2")
    assert (code, out, seen) == (0, "3\n", ["describe_tool", "maths__add"])


def test_a_tool_that_the_gateway_does_not_know_yet_is_found_by_a_refresh(home: Path) -> None:
    called(home, "maths__add", '{"a": 1}')
    source = home / "maths.py"
    more = '\n\n@server.tool\ndef late() -> str:\n    """Come late."""\n    return "here"\n'
    source.write_text(source.read_text() + more)
    code, out, _, seen = called(home, "maths__late")
    assert (code, out) == (0, "here\n")
    assert seen.count("maths__late") in (1, 2)


def test_an_unknown_tool_and_a_broken_server_are_explained_once(home: Path) -> None:
    with (home / "portico.toml").open("a") as file:
        code = "import sys; print('no license', file=sys.stderr); sys.exit(7)"
        file.write(f'[servers.broken]\ncommand = "{sys.executable}"\nargs = ["-c", "{code}"]\n')
    ended, _, err, _ = called(home, "maths__ad", "{}")
    assert (ended, err.count("there is no tool 'maths__ad'")) == (1, 1)
    ended, _, err, _ = called(home, "broken__do", "{}")
    assert (ended, err.count("exited with code 7")) == (1, 1)
    assert "no license" in err


def test_a_search_never_points_a_person_at_a_tool_for_models(home: Path) -> None:
    with (home / "portico.toml").open("a") as file:
        file.write('[servers.broken]\ncommand = "/no/such/program"\n')
    ran = portico(home, "search", "--config", str(home / "portico.toml"), "frobnicate", "zzz")
    assert ran.returncode == 1
    assert "unavailable: the tools of broken; see `portico status`" in ran.stderr
    assert "gateway_status" not in ran.stdout + ran.stderr
