"""What the text of a Python file shows: its servers, links and imports, without running it."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.library.components.analyze import Import, SourceFacts, analyze

RAISES = "raise SystemExit('this file was run')\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "component.py"


def facts(file: Path, text: str, variable: str = "") -> SourceFacts:
    file.write_text(text + RAISES)
    return analyze(str(file), variable)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("from portico import Server\nserver = Server('x')\n", ("server",)),
        ("from portico import Server as S\napp: S = S('x')\n", ("app",)),
        ("import portico\na = b = portico.Server('x')\n", ("a", "b")),
        ("import portico as p\nserver = p.Server.compose('x')\n", ("server",)),
        ("from portico import Server\nif True:\n    server = Server('x')\n", ("server",)),
        (
            "from portico import Server\ntry:\n    x = Server('x')\nexcept OSError:\n    pass\n",
            ("x",),
        ),
        ("from other import Server\nserver = Server('x')\n", ()),
        ("from portico import Server\ndef make():\n    server = Server('x')\n", ()),
    ],
)
def test_servers_are_found(file: Path, text: str, servers: tuple[str, ...]) -> None:
    found = facts(file, text)
    assert found.servers == servers
    assert found.may_have_server
    assert not found.is_middleware_only


@pytest.mark.parametrize(
    "text",
    [
        "def link(next):\n    return next\n",
        "class Timed: ...\nlink = Timed()\n",
        "links = [print]\n",
        "from portico import Only\nlink = Only('x')\n",
        "from other import link\n",
    ],
)
def test_a_file_with_a_link_and_no_server_is_middleware(file: Path, text: str) -> None:
    found = facts(file, text)
    assert found.links in (("link",), ("links",))
    assert found.is_middleware_only


@pytest.mark.parametrize(
    "text",
    [
        "def link(next): ...\nserver = made()\n",
        "def link(next): ...\nfrom other import *\n",
        "def link(next): ...\nfrom portico import Server\nmine = Server('x')\n",
        "app = made()\n",
        "",
    ],
)
def test_a_file_that_may_have_a_server_is_not(file: Path, text: str) -> None:
    assert not facts(file, text).is_middleware_only


def test_one_variable_can_be_chosen(file: Path) -> None:
    text = "from portico import Server\napp = Server('x')\ndef timed(next): ...\nother = made()\n"
    assert facts(file, text, "app").servers == ("app",)
    assert facts(file, text, "app").links == ()
    assert facts(file, text, "timed").is_middleware_only
    assert not facts(file, text, "other").is_middleware_only
    assert facts(file, text, "nothing") == SourceFacts(imports=())


def test_imports_are_those_beside_it_and_installed_and_missing(file: Path) -> None:
    (file.parent / "helper.py").write_text("import msgspec\nimport component\nimport helper\n")
    (file.parent / "package").mkdir()
    (file.parent / "package" / "__init__.py").write_text("import not_there_either\n")
    (file.parent / "broken.py").write_text("def (:\n")
    found = facts(
        file,
        "import os, json.decoder\nimport helper\nimport portico\nimport package.part\n"
        "import broken\n\ndef later():\n    from no_such_thing.inner import x\n",
    )
    helper, package = str(file.parent / "helper.py"), str(file.parent / "package" / "__init__.py")
    assert found.imports == (
        Import("helper", "beside", str(file), 2),
        Import("package", "beside", str(file), 4),
        Import("broken", "beside", str(file), 5),
        Import("no_such_thing", "missing", str(file), 8),
        Import("msgspec", "installed", helper, 1),
        Import("component", "beside", helper, 2),
        Import("not_there_either", "missing", package, 1),
    )


def test_imports_for_type_checkers_are_left_out(file: Path) -> None:
    text = (
        "import typing\nif typing.TYPE_CHECKING:\n    import nowhere\nelse:\n    import msgspec\n"
        "from . import relative\n"
    )
    assert [(one.name, one.origin) for one in facts(file, text).imports] == [
        ("msgspec", "installed"),
        (".", "missing"),
    ]


def test_registered_functions_are_found(file: Path) -> None:
    text = """
from portico import Server
server = Server("x")
other = Server("y")

@server.tool
def add(a): ...

@server.tool(name="sub-tract")
async def sub(a): ...

@server.resource("note://hello", name="hello")
def hello(): ...

@server.resource("note://{name}")
def note(name): ...

@server.resource(made_up())
def unknown(): ...

@server.prompt
def describe(thing): ...

@other.tool
def elsewhere(): ...

@unrelated.tool
def unrelated_tool(): ...
"""
    assert facts(file, text, "server").offers == (
        ("tools", "add"),
        ("tools", "sub-tract"),
        ("resources", "note://hello"),
        ("templates", "note://{name}"),
        ("prompts", "describe"),
    )
    assert facts(file, text, "other").offers == (("tools", "elsewhere"),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"def (:\n", ":1: SyntaxError: "),
        (b"x = 1\n  y = 2\n", ":2: IndentationError: "),
        (b"\xff\xfe", "SyntaxError: "),
        (b"x = '\0'", "null bytes"),
        (b"(" * 10_000, ""),
        (b"x = a" + b".b" * 20_000 + b"()", ""),
    ],
)
def test_a_file_that_cannot_be_parsed_names_the_reason(file: Path, text: bytes, why: str) -> None:
    file.write_bytes(text)
    found = analyze(str(file))
    assert found.problem.startswith(str(file))
    assert why in found.problem


def test_questionable_text_is_not_a_problem(file: Path) -> None:
    assert facts(file, "x = '\\d'\nassert (x, 'always true')\n").problem == ""


def test_a_file_that_is_not_there_is_a_problem(file: Path) -> None:
    assert "No such file" in analyze(str(file)).problem


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=40) | st.from_regex(r"\A(import|from|link|def|@|=|\(|\)|:|\w|\s)*\Z"))
def test_any_file_has_facts_or_a_problem(file: Path, text: bytes | str) -> None:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = analyze(str(file))
    assert not (found.problem and (found.servers or found.links or found.imports))
