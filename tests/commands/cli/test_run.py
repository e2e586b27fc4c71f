"""`portico run`: components in, a server out, and every failure in words."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.messages import initialize, modern, request

DEFINITIONS = {
    "tools": [
        {
            "name": "get-weather",
            "description": "The weather of a city.",
            "inputSchema": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        }
    ],
    "resources": [{"uri": "city://all", "name": "cities"}],
    "prompts": [{"name": "pack", "arguments": [{"name": "city", "required": True}]}],
}
HANDLERS = """
async def get_weather(arguments, context):
    return f"sunny in {arguments['city']}"

def cities(arguments, context):
    return "Oslo, Rome"

def pack(arguments, context):
    return f"Pack for {arguments['city']}"
"""
ADDER = """
from portico import Server
server = Server("adder")

@server.tool
def add(a: int, b: int) -> int:
    \"\"\"Add.\"\"\"
    return a + b

other = Server("other")
"""


def run(*arguments: str | Path, send: tuple[Any, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command to its end with these messages as its input."""
    return subprocess.run(
        [sys.executable, "-m", "portico", "run", *map(str, arguments)],
        input="".join(json.dumps(message) + "\n" for message in send),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answers(ran: subprocess.CompletedProcess[str]) -> dict[Any, Any]:
    assert ran.returncode == 0, ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    return {answer["id"]: answer for answer in found}


def called(name: str, id: int = 1, **arguments: Any) -> dict[str, Any]:
    return modern("tools/call", {"name": name, "arguments": arguments}, id=id)


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(DEFINITIONS))
    return file


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    file = tmp_path / "handlers.py"
    file.write_text(HANDLERS)
    return file


@pytest.fixture
def adder(tmp_path: Path) -> Path:
    file = tmp_path / "adder.py"
    file.write_text(ADDER)
    return file


def test_definitions_are_answered_by_the_functions_of_the_same_name(
    definitions: Path, handlers: Path
) -> None:
    ran = run(
        *(definitions, "--handlers", handlers),
        send=(
            called("get-weather", 1, city="Oslo"),
            modern("resources/read", {"uri": "city://all"}, id=2),
            modern("prompts/get", {"name": "pack", "arguments": {"city": "Rome"}}, id=3),
            modern("tools/list", id=4),
        ),
    )
    got = answers(ran)
    assert got[1]["result"]["content"][0]["text"] == "sunny in Oslo"
    assert got[2]["result"]["contents"][0]["text"] == "Oslo, Rome"
    assert got[3]["result"]["messages"][0]["content"]["text"] == "Pack for Rome"
    assert got[4]["result"]["tools"] == DEFINITIONS["tools"]
    assert ran.stderr == ""


def test_definitions_without_functions_are_served_and_said(definitions: Path) -> None:
    ran = run(definitions, send=(called("get-weather", city="Oslo"),))
    assert answers(ran)[1]["error"]["code"] == -32603
    assert "no handler for get-weather, city://all, pack" in ran.stderr
    assert "--handlers" in ran.stderr


def test_a_python_file_is_served_and_may_name_its_server(adder: Path) -> None:
    assert answers(run(adder, send=(called("add", a=1, b=2),)))[1]["result"]["content"]
    named = run(f"{adder}:other", send=(initialize(),))
    assert answers(named)[0]["result"]["serverInfo"]["name"] == "other"


def test_the_name_of_a_server_is_what_follows_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "to:day"
    folder.mkdir()
    (folder / "both.py").write_text(ADDER)
    ran = run(f"{folder}/both.py:other", send=(modern("server/discover"),))
    assert '"name":"other"' in ran.stdout


def test_several_components_are_one_server(adder: Path, definitions: Path, handlers: Path) -> None:
    listed = run(
        *(adder, definitions, "--handlers", handlers, "--name", "both"),
        send=(modern("tools/list"), initialize(id=2)),
    )
    tools = answers(listed)[1]["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["add", "get-weather"]
    assert answers(listed)[2]["result"]["serverInfo"]["name"] == "both"


def test_a_clash_of_components_names_both(tmp_path: Path, adder: Path) -> None:
    twin = tmp_path / "twin.py"
    twin.write_text(ADDER.replace('Server("adder")', 'Server("twin")'))
    ran = run(adder, twin)
    assert ran.returncode == 1
    assert "tool 'add' is offered by both 'adder' and 'twin'" in ran.stderr


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.json", "{", "x.json"),
        ("x.json", '[{"name": "a"}]', 'tool 1 ("a"): inputSchema'),
        ("x.json", '{"tools": [{"name": "a", "inputSchema": {"type": "objct"}}]}', "inputSchema"),
        ("x.py", "x = 1", "contains neither a Server nor a link"),
        ("x.py", "from portico import Server\na, b = Server('a'), Server('b')", "choose one"),
        ("x.py", "import nonsense_that_is_not_there", "nonsense_that_is_not_there"),
        ("x.py", "raise SystemError('by design')", "by design"),
        ("x.py", "raise SystemExit('set the key first')", "set the key first"),
        ("x.py", "\nfloat('half')", "line 2, in <module>\n    float("),
        ("x.py", "open('that-is-not-there')", "line 1, in <module>"),
        (
            "x.py",
            "import portico\ns = portico.Server('s')\n@s.tool\ndef f(*a): ...",
            "x.py:3: f()",
        ),
        ("x.txt", "", "not a component"),
    ],
)
def test_what_cannot_be_served_is_said_with_exit_1(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    ran = run(tmp_path / name)
    assert ran.returncode == 1
    assert words in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "required"),
        (("x.py", "--nonsense"), "nonsense"),
        (("{file}", "--http", "nowhere"), "not an address"),
        (("{file}", "--http", "0.0.0.0:0", "--auth", "none"), "loopback only"),
        (("{file}", "--auth", "maybe"), "choose from"),
        (("{file}", "--handlers", "x.py"), "--handlers needs a definitions file"),
        (("{file}", "--drain", "nan"), "not a number of seconds"),
        (("{file}", "--drain", "-1"), "not a number of seconds"),
    ],
)
def test_wrong_usage_is_said_with_exit_2(
    adder: Path, arguments: tuple[str, ...], words: str
) -> None:
    ran = run(*(argument.format(file=adder) for argument in arguments))
    assert ran.returncode == 2
    assert words in ran.stderr


def test_missing_files_are_named(tmp_path: Path, definitions: Path) -> None:
    for arguments in (["nope.py"], [definitions, "--handlers", "nope.py"]):
        ran = run(*arguments)
        assert ran.returncode == 1
        assert "nope.py: no such file" in ran.stderr


def test_handlers_that_cannot_be_read_are_refused_without_a_traceback(
    tmp_path: Path, definitions: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for path, why in (
        (tmp_path, "a folder, not a file; give a file in it"),
        (tmp_path / "pipe.py", "not a regular file; give a .py or a .json file"),
    ):
        ran = run(definitions, "--handlers", path)
        assert ran.returncode == 1
        assert ran.stderr == f"portico: {path}: {why}\n"


def test_a_taken_port_is_said(adder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = run(adder, "--http", str(taken.getsockname()[1]), "--auth", "none")
    assert ran.returncode == 1
    assert "cannot serve at" in ran.stderr


def test_http_wants_the_token_that_it_keeps(adder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PORTICO_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "portico", "run", str(adder), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        url = said.split()[2]
        kept = tmp_path / "home" / "state" / "token"
        token = kept.read_text().strip()
        assert token not in said
        assert str(kept) in said
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(url, None)
        refused.value.close()
        answer = post(url, token)
        process.terminate()
        assert process.wait(60) == 0
    assert refused.value.code == 401
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["add"]


def post(url: str, token: str | None) -> Any:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/list",
    }
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = json.dumps(modern("tools/list")).encode()
    asked = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(asked, timeout=30) as response:
        return json.load(response)


def test_requests_in_both_eras_may_share_one_connection(adder: Path) -> None:
    ran = run(
        adder,
        send=(initialize("2025-06-18"), request("tools/list", id=1), modern("tools/list", id=2)),
    )
    got = answers(ran)
    assert "resultType" not in got[1]["result"]
    assert got[2]["result"]["resultType"] == "complete"


def test_the_last_message_needs_no_end_of_line(adder: Path) -> None:
    command = [sys.executable, "-m", "portico", "run", str(adder)]
    asked = json.dumps(called("add", a=1, b=2))
    ran = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=60, check=False
    )
    assert answers(ran)[1]["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("name", ["email.py", "types.py", "select.py", "portico.py"])
def test_a_file_may_be_called_like_a_module_that_we_need(tmp_path: Path, name: str) -> None:
    (tmp_path / "beside.py").write_text("ONE = 1")
    file = tmp_path / name
    file.write_text(f"import beside\n{ADDER}".replace("a + b", "a + b + beside.ONE"))
    ran = run(file, send=(called("add", a=1, b=2),))
    assert answers(ran)[1]["result"]["structuredContent"] == {"result": 4}


def test_what_went_wrong_in_a_file_is_shown_without_our_own_part_in_it(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("1 / 0")
    ran = run(tmp_path / "x.py")
    assert "ZeroDivisionError" in ran.stderr
    assert "components.py" not in ran.stderr


def test_functions_for_several_definition_files_are_read_once(
    tmp_path: Path, definitions: Path
) -> None:
    more = tmp_path / "more.json"
    more.write_text('{"tools": [{"name": "count", "inputSchema": {"type": "object"}}]}')
    (tmp_path / "functions.py").write_text(
        "print('read')\n" + HANDLERS + "\ndef count(arguments):\n    return 'one'\n"
    )
    ran = run(
        *(definitions, more, "--handlers", tmp_path / "functions.py"), send=(called("count"),)
    )
    assert answers(ran)[1]["result"]["content"][0]["text"] == "one"
    assert ran.stderr == "read\n"


def test_one_component_may_be_called_otherwise(adder: Path) -> None:
    ran = run(adder, "--name", "sums", send=(initialize(),))
    assert answers(ran)[0]["result"]["serverInfo"]["name"] == "sums"


def test_a_server_on_all_addresses_says_one_that_works_and_who_is_let_in(
    adder: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PORTICO_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "portico", "run", str(adder), "--http", "0.0.0.0:0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[2]
        hint = process.stderr.readline()
        answer = post(url, (tmp_path / "home" / "state" / "token").read_text().strip())
        process.terminate()
        assert process.wait(60) == 0
    assert answer["result"]["tools"]
    assert "--allow-host" in hint


FAILING = """
from portico import Server
server = Server("failing")

@server.tool
async def fail() -> str:
    \"\"\"Fail.\"\"\"
    raise ValueError("by design " + 5000 * "x")
"""


def test_a_client_that_does_not_read_what_is_logged_is_served_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text(FAILING)
    command = [sys.executable, "-m", "portico", "run", str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(100):  # more than a pipe holds
            process.stdin.write(json.dumps(called("fail", number)).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["result"]["isError"]
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert b"ValueError: by design" in process.stderr.read()


def test_a_file_may_arrange_its_own_log(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text("import logging\nlogging.basicConfig(format='OWN %(message)s')\n" + FAILING)
    ran = run(file, send=(called("fail"),))
    assert answers(ran)[1]["result"]["isError"]
    assert ran.stderr.count("OWN tools/call fail failed") == 1
    assert ran.stderr.count("ValueError: by design") == 1
