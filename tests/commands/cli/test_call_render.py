"""What a server sends is safe to look at, and nothing of it is lost on the way to a file."""

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.commands.console.render import Screen, Ticker, clean
from portico.commands.console.result import CannotSave, show_result


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(result: dict[str, Any], save: Path | None = None) -> str:
    out = io.StringIO()
    show_result(result, Screen(out), save)
    return out.getvalue()


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("windows\r\nline", "windows\nline"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b]0;title\x07", "\\u001b[2J\\u001b]0;title\\u0007"),
        ("over\rwritten", "over\\u000dwritten"),
        ("\x9b31m\x7f\x08", "\\u009b31m\\u007f\\u0008"),
        ("right\u202eleft\u2066", "right\\u202eleft\\u2066"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("hidden\U000e0041", "hidden\\udb40\\udc41"),
        (
            "café ☃ 👩\u200d💻 \u0645\u06cc\u200c\u062e",
            "café ☃ 👩\u200d💻 \u0645\u06cc\u200c\u062e",
        ),
    ],
)
def test_what_a_terminal_would_obey_is_made_visible(sent: str, seen: str) -> None:
    assert clean(sent) == seen


@given(st.text())
def test_nothing_a_terminal_obeys_is_left(sent: str) -> None:
    assert not set(clean(sent)) & set(map(chr, (*range(9), *range(11, 32), *range(127, 160))))


@given(st.dictionaries(st.text(), st.text()))
def test_cleaned_json_is_still_the_same_json(value: dict[str, str]) -> None:
    raw = msgspec.json.encode(value)
    assert msgspec.json.decode(clean(raw.decode())) == value


def test_a_file_gets_what_was_sent() -> None:
    out = io.StringIO()
    Screen(out).print("\x1b[31mraw\x1b[0m\u202e")
    assert out.getvalue() == "\x1b[31mraw\x1b[0m\u202e\n"


@pytest.mark.parametrize("style", ["", "bold"])
def test_a_terminal_does_not(style: str) -> None:
    out = Terminal()
    Screen(out).print("\x1b]0;x\x07[bold]not markup[/bold] :smile:", style)
    assert "\x1b]0" not in out.getvalue()
    assert "[bold]not markup[/bold] :smile:" in out.getvalue()


def test_a_table_on_a_terminal_is_clean_and_a_plain_one_is_lines() -> None:
    rows = [("a\x1b]0;x\x07", "b:string*", "first\nline"), ("c", "", "")]
    terminal, file = Terminal(), io.StringIO()
    Screen(terminal).table("Title", rows)
    Screen(file).table("Title", [("a", "b:string*", "about"), ("c", "", "")])
    assert "\x1b]0" not in terminal.getvalue()
    assert "b:string*" in terminal.getvalue()
    assert file.getvalue() == "\nTitle\n  a  b:string*  about\n  c\n"


def test_text_is_text() -> None:
    assert shown({"content": [text("one"), text("two\n")]}) == "one\ntwo\n"


def test_structured_data_is_shown_once_however_often_it_is_said() -> None:
    both = {"content": [text('{"a": 1}')], "structuredContent": {"a": 1}}
    assert shown(both) == '{\n  "a": 1\n}\n'
    wrapped = {"content": [text("4")], "structuredContent": {"result": 4}}
    assert shown(wrapped) == "4\n"
    word = {"content": [text("hi")], "structuredContent": {"result": "hi"}}
    assert shown(word) == "hi\n"
    more = {"content": [text("one thing")], "structuredContent": {"a": 1}}
    assert shown(more) == 'one thing\n{\n  "a": 1\n}\n'


def test_other_content_is_a_line_about_it() -> None:
    blocks = [
        {"type": "image", "data": "AAECAw==", "mimeType": "image/png"},
        {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
        {"type": "image", "data": "!", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "a://b", "name": "b", "mimeType": "text/plain"},
        {"type": "resource_link", "uri": "a://c", "name": "c", "title": "C", "description": "it"},
        {"type": "resource", "resource": {"uri": "a://d", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "a://e", "blob": "AAA="}},
        {"type": "dance", "steps": 3},
    ]
    assert shown({"content": blocks}).splitlines() == [
        "[image image/png, 4 bytes]",
        "[audio audio/wav, 1 byte]",
        "[image image/png, which is not valid Base64]",
        "[link b <a://b> (text/plain)]",
        "[link C <a://c>: it]",
        "[resource a://d]",
        "inside",
        "[resource a://e of unknown type, 2 bytes]",
        "{",
        '  "type": "dance",',
        '  "steps": 3',
        "}",
    ]


def test_nothing_is_said_to_be_nothing_and_an_unknown_result_is_shown_whole() -> None:
    assert shown({"content": []}) == "(nothing)\n"
    assert shown({"resultType": "task", "taskId": "7"}) == (
        '{\n  "resultType": "task",\n  "taskId": "7"\n}\n'
    )


def test_files_are_saved_and_none_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    image = {"content": [{"type": "image", "data": "AAECAw==", "mimeType": "image/png"}]}
    assert f"saved as {folder / 'result-1.png'}" in shown(image, folder)
    assert f"saved as {folder / 'result-1-2.png'}" in shown(image, folder)
    assert (folder / "result-1.png").read_bytes() == b"\0\1\2\3"


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    image = {"content": [{"type": "image", "data": "AA==", "mimeType": "../../evil"}]}
    with pytest.raises(CannotSave, match="cannot write to"):
        shown(image, tmp_path / "file")
    shown(image, tmp_path)
    assert (tmp_path / "result-1.bin").exists()


def test_what_takes_its_time_is_said_on_a_terminal_only() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        Screen(stream).print_waiting("asking \x1b[2Jfiles")
    assert "asking \\u001b[2Jfiles ..." in terminal.getvalue()
    assert file.getvalue() == ""


def test_progress_stays_within_a_line_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    terminal = Terminal()
    Ticker(Screen(terminal)).show({"progress": 1, "message": "a long way to go " * 9})
    assert terminal.getvalue() == "\r\x1b[2Kprogress 1 a long way to go a"
    wide = Terminal()
    Ticker(Screen(wide)).show({"progress": 1, "message": "長い" * 20})
    assert wide.getvalue() == "\r\x1b[2Kprogress 1 長い長い長い長い長"


def test_progress_is_lines_on_a_terminal_that_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    ticker = Ticker(Screen(terminal))
    ticker.show({"progress": 1, "total": 2})
    ticker.clear()
    assert terminal.getvalue() == "progress 1/2\n"


def test_progress_does_not_disturb_whoever_is_asked_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    ticker = Ticker(Screen(terminal))
    ticker.show({"progress": 1})
    with ticker.paused():
        ticker.show({"progress": 2})
    ticker.show({"progress": 3})
    assert terminal.getvalue() == "\r\x1b[2Kprogress 1\r\x1b[2K\r\x1b[2Kprogress 3"


def test_progress_is_lines_in_a_file_and_one_line_on_a_terminal() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        ticker = Ticker(Screen(stream))
        ticker.show({"progress": 1, "total": 3, "message": "one\x1b]0;x\x07"})
        ticker.show({"progress": "odd"})
        ticker.clear()
    assert file.getvalue().splitlines()[1] == "progress ?"
    assert "\n" not in terminal.getvalue()
    assert "\x1b]0" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[2K")
