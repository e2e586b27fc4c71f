"""Several components as one server: their order, their names, and what is refused."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rigs.running import scripted
from tests.support.messages import initialize
from tests.support.running import WAIT_S, Child, http_server, portico_run
from tests.wrap.faults import alive, command_line, descendants, until
from tests.wrap.talk import Client, Pipes, web

pytestmark = pytest.mark.xdist_group("composition")

CALC = """
from portico import Server

server = Server("calculator", instructions="Adds numbers.")

@server.tool
def add(a: int, b: int) -> int:
    \"\"\"Add.\"\"\"
    return a + b
"""
WRONG = CALC.replace("a + b", "a + b + 1")
GREET = """
from portico import Server

server = Server("greeter")

@server.tool
def greet(name: str) -> str:
    \"\"\"Greet.\"\"\"
    return f"hello {name}"

@server.prompt
def hail(name: str) -> str:
    \"\"\"Hail.\"\"\"
    return f"hail {name}"
"""
DEFINITIONS = {
    "tools": [{"name": "shout", "description": "Shout.", "inputSchema": {"type": "object"}}]
}
HANDLERS = """
def shout(arguments):
    return "HELLO"
"""
NOTING = """
import sys

def link(next):
    def handle(request, context):
        print(f"NAME saw {request.method} {request.name}", file=sys.stderr, flush=True)
        return next(request, context)
    return handle
"""
BOTH = """
from portico import Server

server = Server("both")

@server.tool
def count() -> int:
    \"\"\"Count the calls.\"\"\"
    return len(seen)

seen = []

def link(next):
    def handle(request, context):
        if request.method == "tools/call":
            seen.append(request.name)
        return next(request, context)
    return handle
"""
ECHO = {"name": "echo", "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    files = {"calc": CALC, "wrong": WRONG, "greet": GREET, "both": BOTH, "functions": HANDLERS}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(NOTING.replace("NAME", name))
    (tmp_path / "tools.json").write_text(json.dumps(DEFINITIONS))
    (tmp_path / "echo.txt").write_text(json.dumps(ECHO))
    return tmp_path


def absolute(arguments: tuple[str, ...]) -> list[str]:
    """The arguments with the whole path of each file: a test's process runs in another folder."""
    found = []
    for argument in arguments:
        name, middle, path = argument.rpartition("=")
        is_file = path.partition(":")[0].endswith((".py", ".json"))
        found.append(f"{name}{middle}{Path(path).absolute()}" if is_file else argument)
    return found


def echo(folder: Path) -> str:
    """The command of another server."""
    return "echo=" + " ".join(scripted(folder / "echo.txt"))


@contextmanager
def running(*arguments: str, modern: bool = False) -> Iterator[Pipes]:
    """A client of `portico run`, over stdio."""
    first, *rest = absolute(arguments)
    with Pipes(Path(), words=portico_run(Path(first), *rest), modern=modern) as client:
        if not modern:
            client.hello()
        yield client


def refused(*arguments: str) -> str:
    """What `portico run` prints when it does not start, while its client waits."""
    child = Child(portico_run(Path(arguments[0]), *arguments[1:]), subprocess.PIPE, Path.cwd())
    with child.process as process:
        code = process.wait(WAIT_S)
    child.ended()
    assert code == 1, child.stderr()
    return child.stderr()


def listed(client: Client, kind: str = "tools") -> list[str]:
    found = json.loads(client.ask(f"{kind}/list"))[kind]
    return [one["name"] for one in found]


@pytest.mark.parametrize("modern", [False, True])
def test_components_of_every_kind_are_one_server_in_their_order(folder: Path, modern: bool) -> None:
    parts = ("greet.py", echo(folder), "tools.json", "calc.py", "--handlers", "functions.py")
    with running(*parts, modern=modern) as client:
        assert listed(client) == ["greet", "echo", "shout", "add"]
        assert client.call("add", a=1, b=2) == "3"
        assert client.call("shout") == "HELLO"
        assert client.call("greet", name="you") == "hello you"
        assert listed(client, "prompts") == ["hail"]
        error = json.loads(client.error(client.start("none")))
    assert (error["code"], error["message"]) == (-32602, "unknown tool: none")


def test_the_same_over_http(folder: Path) -> None:
    with http_server(folder / "calc.py", echo(folder)) as server, web(server.port) as client:
        assert listed(client) == ["add", "echo"]
        assert client.call("add", a=1, b=2) == "3"


@pytest.mark.usefixtures("folder")
def test_a_composition_introduces_itself_with_the_instructions_of_its_parts() -> None:
    words = absolute(("calc.py", "greet.py"))
    served = portico_run(Path(words[0]), words[1], "--name", "mine")
    with Pipes(Path(), words=served) as client:
        hello = json.loads(client.hello())
    assert hello["serverInfo"]["name"] == "mine"
    assert hello["instructions"] == "calc: Adds numbers."


@pytest.mark.usefixtures("folder")
def test_a_name_of_two_components_is_refused_with_both_named() -> None:
    told = refused("calc.py", "wrong.py")
    assert "tool 'add' is offered by both 'calc' and 'wrong'" in told
    assert "; use --prefix to put the component's name before each, or --shadow add to use" in told


def test_a_clash_with_another_server_is_refused_at_the_first_start_and_later(folder: Path) -> None:
    clashing = {"name": "echo", "tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
    (folder / "echo.txt").write_text(json.dumps(clashing))
    for _ in range(2):  # the second time from the stored catalog
        assert "tool 'add' is offered by both 'calc' and 'echo'" in refused("calc.py", echo(folder))
    (folder / "echo.txt").write_text(json.dumps(ECHO))
    with running("calc.py", echo(folder)) as client:  # the stored catalog is out of date
        assert listed(client) == ["add", "echo"]


@pytest.mark.usefixtures("folder")
def test_a_prefix_resolves_a_clash() -> None:
    with running("calc.py", "other=wrong.py", "--prefix") as client:
        assert listed(client) == ["calc__add", "other__add"]
        assert (client.call("calc__add", a=1, b=2), client.call("other__add", a=1, b=2)) == (
            "3",
            "4",
        )


@pytest.mark.usefixtures("folder")
def test_a_name_is_shadowed_on_request_only() -> None:
    with running("wrong.py", "calc.py", "--shadow", "add") as client:
        assert listed(client) == ["add"]
        assert client.call("add", a=1, b=2) == "4"
    with running("calc.py", "greet.py", "--shadow", "ad") as client:
        told = "--shadow: no component offers 'ad'; did you mean add?"
        assert until(lambda: told in client.child.stderr())


def test_a_server_that_does_not_start_is_reported_once_and_the_others_are_served(
    folder: Path,
) -> None:
    (folder / "fails.py").write_text("1 / 0")
    fails = "fails=" + " ".join(portico_run(folder / "fails.py"))
    with running("calc.py", fails) as client:
        assert listed(client) == ["add"]
        assert client.call("add", a=1, b=2) == "3"
    stderr = client.child.stderr()
    assert stderr.count("portico: fails exited with code 1; last output:") == 1
    assert "fails.py:1: ZeroDivisionError: division by zero" in stderr


@pytest.mark.usefixtures("folder")
def test_a_component_can_be_replaced_by_another() -> None:
    with running("calc.py", "greet.py", "--override", "calc=wrong.py") as client:
        assert client.call("add", a=1, b=2) == "4"
    told = refused("calc.py", "--override", "calk=wrong.py")
    assert "--override: there is no component 'calk'; did you mean calc?" in told


def test_two_files_with_the_same_name_are_refused_and_can_be_named(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "calc.py").write_text(GREET)
    told = refused("calc.py", "sub/calc.py")
    assert "calc.py and sub/calc.py are both named calc" in told
    assert "NAME=sub/calc.py" in told
    with running("calc.py", "hello=sub/calc.py", "--prefix") as client:
        assert listed(client) == ["calc__add", "hello__greet"]


@pytest.mark.usefixtures("folder")
def test_a_link_sees_what_comes_after_it() -> None:
    with running("first.py", "greet.py", "second.py", "calc.py") as client:
        client.ask("tools/list")
        client.call("greet", name="you")
        client.call("add", a=1, b=2)
        stderr = client.child.stderr
        assert until(lambda: "second saw tools/call add" in stderr())
        seen = [line for line in stderr().splitlines() if " saw tools/" in line]
    assert seen == [
        "first saw tools/list ",
        "first saw tools/call greet",
        "first saw tools/call add",
        "second saw tools/call add",
    ]


@pytest.mark.usefixtures("folder")
def test_a_file_with_a_server_and_a_link_is_both() -> None:
    with running("both.py", "calc.py") as client:
        assert listed(client) == ["count", "add"]
        client.call("add", a=1, b=2)
        assert client.call("count") == "2"
    with running("both.py:server") as client:
        assert client.call("count") == "0"


def test_middleware_stands_in_front_of_one_other_server(folder: Path) -> None:
    with running("first.py", echo(folder)) as client:
        assert listed(client) == ["echo"]
        assert until(lambda: "first saw tools/list" in client.child.stderr())


LATE = """
from portico import Server

server = Server("late")

@server.tool
def grow() -> str:
    \"\"\"Offer more.\"\"\"
    @server.tool
    def add() -> str:
        \"\"\"Take another's name.\"\"\"
        return "mine"
    @server.tool
    def fresh() -> str:
        \"\"\"A name of its own.\"\"\"
        return "fresh"
    return "grown"
"""


@pytest.mark.parametrize("order", [("calc.py", "late"), ("late", "calc.py")])
def test_a_clash_that_another_server_introduces_later_is_hidden_and_reported(
    folder: Path, order: tuple[str, str]
) -> None:
    (folder / "late.py").write_text(LATE)
    late = "late=" + " ".join(portico_run(folder / "late.py"))
    with running(*(late if one == "late" else one for one in order)) as client:
        client.ask("tools/list")
        assert client.call("grow") == "grown"
        client.next("notifications/tools/list_changed")
        assert sorted(listed(client)) == ["add", "fresh", "grow"]
        assert client.call("add", a=1, b=2) == "3"
        told = "tool 'add' is offered by both 'calc' and 'late'; the second is hidden"
        assert until(lambda: told in client.child.stderr())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing-here",), "'nothing-here' is neither a file, an alias nor a command"),
        (("calcc.py",), "calcc.py: no such file; did you mean calc.py?"),
        (("calc.py", "."), ".: a folder, not a file"),
        (("first.py",), "first.py: nothing is behind this middleware"),
        (("calc.py:nothing",), "calc.py: there is no variable 'nothing'; it has server, add"),
        (("calc.py:sever",), "calc.py: there is no variable 'sever'; did you mean server?"),
        (("calc.py:__name__",), "calc.py: '__name__' is str, not a Server or a link"),
        (("calc.py", "functions.py"), "functions.py: contains neither a Server nor a link"),
        (("calc.py", "a b=greet.py"), "there is no command 'a'"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_cannot_be_composed_is_refused(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(*arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0", "bad.py:1: ZeroDivisionError: division by zero"),
        ("def f(:", "bad.py:1: SyntaxError"),
        ("import helper", "helper.py:2: NameError: name 'oops' is not defined"),
        ("import sys\nsys.exit(3)", "bad.py:2: the import exited with code 3"),
        ("import none_such", "bad.py:1: cannot import none_such: no such module"),
        ("link = 3", "bad.py:link: int is not a link"),
        ("async def link(next): ...", "bad.py:link: the link is `async def`"),
        ("links = 3", "bad.py: `links` must be a list of links, not int"),
        ("class link: ...", "bad.py:link: link is a class; give an instance of it"),
        ("def link(next): ...", "bad.py:1: the link 'link' returned NoneType, not a handler"),
    ],
)
def test_a_file_that_cannot_be_loaded_names_its_own_line_first(
    folder: Path, text: str, words: str
) -> None:
    (folder / "bad.py").write_text(text)
    (folder / "helper.py").write_text("x = 1\noops\n")
    told = refused("bad.py", "calc.py")
    assert words in told.splitlines()[0], told


SLOW = """
import asyncio
from pathlib import Path

from portico import Context, Server

from words import GREETING

server = Server("slow")
here = Path(__file__).parent

@server.tool
async def wait() -> str:
    \"\"\"Wait for a file.\"\"\"
    (here / "waiting").touch()
    while not (here / "go").exists():
        await asyncio.sleep(0.01)
    return "GREETING of old".replace("GREETING", GREETING)

@server.tool
def version() -> str:
    \"\"\"Name this version.\"\"\"
    return "first"
"""


@pytest.mark.parametrize("modern", [False, True])
def test_a_saved_file_is_reloaded_while_a_client_is_connected(folder: Path, modern: bool) -> None:
    slow, words = folder / "slow.py", folder / "words.py"
    words.write_text("GREETING = 'hello'\n")
    slow.write_text(SLOW)
    with running("first.py", "slow.py", "calc.py", "--watch", modern=modern) as client:
        stderr = client.child.stderr
        assert listed(client) == ["version", "wait", "add"]
        assert client.call("version") == "first"
        pending = client.start("wait")
        assert until((folder / "waiting").exists)

        slow.write_text(SLOW.replace('"first"', '"other"'))  # the offer stays the same
        assert until(lambda: client.call("version") == "other")
        slow.write_text("def f(:")
        assert until(lambda: "slow.py changed, but was not reloaded" in stderr())
        assert "slow.py:1: SyntaxError" in stderr()
        assert client.call("version") == "other"
        assert client.heard("notifications/tools/list_changed") == []

        slow.write_text(SLOW.replace('"first"', "GREETING").replace("def version", "def greeting"))
        assert until(lambda: listed(client) == ["greeting", "wait", "add"])
        words.write_text("def f(:")
        assert until(lambda: "words.py:1: SyntaxError" in stderr())
        words.write_text("GREETING = 'good day'\n")  # a module beside it
        assert until(lambda: client.call("greeting") == "good day")
        if not modern:
            client.next("notifications/tools/list_changed")

        (folder / "go").touch()
        assert client.said(pending) == "hello of old"  # it began in the first version
        assert client.call("add", a=1, b=2) == "3"


def test_saved_middleware_is_reloaded(folder: Path) -> None:
    first = folder / "first.py"
    with running("first.py", "calc.py", "second.py", "greet.py", "--watch") as client:
        stderr = client.child.stderr
        client.call("add", a=1, b=2)
        first.write_text(NOTING.replace("NAME", "newer"))
        assert until(lambda: "first.py changed; reloaded" in stderr())
        (folder / "second.py").write_text(NOTING.replace("NAME", "latest"))
        assert until(lambda: "second.py changed; reloaded" in stderr())
        client.call("greet", name="you")
        assert until(lambda: "latest saw tools/call greet" in stderr())
        assert "newer saw tools/call greet" in stderr()
        assert "first saw tools/call greet" not in stderr()
        first.write_text("link = 3")
        assert until(lambda: "first.py:link: int is not a link" in stderr())
        client.call("add", a=1, b=2)
        assert until(lambda: "newer saw tools/call add" in stderr())


def test_no_server_of_a_composition_outlives_it(folder: Path) -> None:
    words = portico_run(folder / "calc.py", echo(folder), str(folder / "greet.py"))
    child = Child(words, subprocess.PIPE, folder)
    with child.process as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(initialize("2025-11-25")).encode() + b"\n")
        process.stdin.flush()
        assert until(lambda: any("scripted.py" in one for one in commands(process.pid)))
        kin = descendants(process.pid)
        process.kill()
    child.ended()
    assert until(lambda: not alive(kin))


def commands(pid: int) -> list[str]:
    """The command lines of the processes that were started for a process."""
    return [command_line(one) for one in descendants(pid)]
