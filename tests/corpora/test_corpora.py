"""Every JSON parsing file and every naughty string, through stdio and HTTP, in both eras.

Each is accepted, rejected or refused, and the next good request is answered (`Line.say`): never
an unhandled exception, a hang or a dead server.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.corpora.cases import LINES, Line, call, is_json, json_files, naughty_strings, opened
from tests.corpora.cases import request as framed
from tests.support.shared import shared

pytestmark = pytest.mark.slow

PARSE_ERROR, INVALID_REQUEST = -32700, -32600


@pytest.fixture(scope="module", params=LINES)
def running(request: pytest.FixtureRequest) -> Iterator[Line]:
    shared("corpora")  # without it there is nothing to say, and nothing was checked
    with opened(request.param) as line:
        yield line


@pytest.fixture
def line(running: Line) -> Iterator[Line]:
    before = running.oracle.checked
    yield running
    assert "Traceback" not in running.stderr()
    assert running.oracle.problems == []
    assert running.oracle.checked - before > 300


def codes(answers: list[dict[str, Any]]) -> list[int]:
    return [answer["error"]["code"] for answer in answers if "error" in answer]


def echoed(answers: list[dict[str, Any]]) -> Any:
    """What the echo tool gave back, or the first answer if it did not."""
    (answer,) = answers
    result = answer.get("result", {})
    return result["structuredContent"]["value"] if "structuredContent" in result else answer


def test_no_file_is_a_request_so_each_is_refused(line: Line) -> None:
    wrong = {}
    for name, body in json_files().items():
        expected = {PARSE_ERROR, INVALID_REQUEST}
        if name.startswith("n_") and body.count(b"[") < 100:
            expected = {PARSE_ERROR}
        elif name.startswith("y_"):
            expected = {INVALID_REQUEST}
        if line.splits and b"\n" in body:
            expected = {PARSE_ERROR, INVALID_REQUEST}  # each line is judged on its own
        answers = line.say(body)
        got = codes(answers)
        if not body.strip() and not got:
            continue  # over stdio a blank line is no message at all
        if not got or len(got) != len(answers) or not set(got) <= expected:
            wrong[name] = answers
    assert wrong == {}


def test_files_that_are_json_come_through_an_argument_unharmed(line: Line) -> None:
    wrong = {}
    for name, body in json_files().items():
        value = body.replace(b"\n", b" ").replace(b"\r", b" ")
        message = call(line, value)
        answers = line.say(message, "tools/call", "echo")
        unharmed = not name.startswith("y_") or echoed(answers) == json.loads(body)
        refused = is_json(message) or len(codes(answers)) == 1
        if len(answers) != 1 or not unharmed or not refused:
            wrong[name] = answers
    assert wrong == {}


def test_naughty_strings_come_through_an_argument_unharmed(line: Line) -> None:
    wrong = {}
    for string in naughty_strings():
        for value in (json.dumps(string), json.dumps(string, ensure_ascii=False)):
            answers = line.say(call(line, value.encode()), "tools/call", "echo")
            if echoed(answers) != string:
                wrong[string] = answers
    assert wrong == {}


def test_naughty_strings_as_whole_messages_are_refused(line: Line) -> None:
    wrong = {}
    for string in naughty_strings():
        for body in (string.encode(), json.dumps(string).encode()):
            got = codes(line.say(body))
            if not got and body.strip():
                wrong[string] = got
    assert wrong == {}


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ("tools/call", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("tools/list", "cursor"),
        ("", "method"),
    ],
)
def test_naughty_strings_as_names_are_unknown_and_echo_their_id(
    line: Line, method: str, key: str
) -> None:
    wrong = {}
    for string in naughty_strings():
        message = framed(line, f"id of {string}", method or string, {key: string} if method else {})
        answers = line.say(message, method)
        expected = {-32601, -32602, -32600, -32002, -32020}
        if method == "tools/list" and not string:
            continue  # an empty cursor is none
        (answer,) = answers
        if answer.get("id") != f"id of {string}" or answer["error"]["code"] not in expected:
            wrong[string] = answers
    assert wrong == {}
