"""The catalog that `wrap` keeps on disk: for which account, how safely, and how it is updated."""

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import bad, listening, shelf
from tests.support.running import Piped
from tests.wrap.faults import command_line
from tests.wrap.standing import Standing, children, until, wrap_command

CUTS = 12


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "tools"
    file.write_text("lists announce one")
    return file


def stored(home: Path) -> list[Path]:
    """The catalogs on disk."""
    return sorted((home / "cache" / "catalogs").glob("*.catalog"))


def filled(home: Path, *words: str) -> list[str]:
    """The tools that a first `wrap` lists, once they are on disk."""
    before = len(stored(home))
    with Standing(home, *words) as wrap:
        wrap.initialize()
        tools = wrap.tools()
        until(lambda: len(stored(home)) > before, "nothing is kept")
    return tools


def started(wrap: Standing) -> bool:
    """True if there is a process of the server behind it."""
    return any("tests/rigs" in command_line(pid) for pid in children(wrap.process.pid))


def test_what_is_kept_is_served_without_starting_the_server(home: Path, words: Path) -> None:
    tools = filled(home, "--", *shelf(words))
    with Standing(home, "--", *shelf(words)) as wrap:
        assert wrap.initialize()["result"]["serverInfo"]["name"] == "shelf"
        assert wrap.tools() == tools
        assert not started(wrap)
        assert wrap.said("one") == "one"
        assert started(wrap)


def test_what_is_kept_is_for_this_user_alone(home: Path, words: Path) -> None:
    filled(home, "--", *shelf(words))
    for path in [home / "cache" / "catalogs", *home.rglob("*.catalog"), home / "state"]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_several_at_a_time_share_what_is_kept(home: Path, words: Path) -> None:
    wraps = [Standing(home, "--", *shelf(words)) for _ in range(4)]
    try:
        for wrap in wraps:
            wrap.start("initialize", _hello())
        for wrap in wraps:
            wrap.answer_to(1)
            assert wrap.tools() == ["lists", "announce", "one"]
        until(lambda: stored(home), "nothing is kept")
        for round in range(3):
            words.write_text(f"announce now-{round}")
            for wrap in wraps:
                wrap.said("announce")
            for wrap in wraps:
                has_come(wrap, f"now-{round}")
        told = [line for wrap in wraps for line in wrap.stderr().splitlines()]
        assert all(" appeared " in line for line in told), told
    finally:
        for wrap in wraps:
            wrap.__exit__()
    assert len(stored(home)) == 1
    assert filled_again(home, words) == ["announce", "now-2"]
    assert not list(home.rglob("*.corrupt-*"))
    assert not list(home.rglob("*.draft"))


def has_come(wrap: Standing, tool: str) -> None:
    """Wait for a tool to be listed."""
    until(lambda: tool in wrap.tools(), "the list stays old")


def filled_again(home: Path, words: Path) -> list[str]:
    """The tools that the next `wrap` lists from its cache alone."""
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
        tools = wrap.tools()
        assert not started(wrap)
    return tools


def _hello() -> dict[str, Any]:
    client = {"name": "tests", "version": "1"}
    return {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}


@pytest.mark.parametrize("how", ["option", "environment"])
def test_two_accounts_of_one_server_never_share_a_catalog(
    how: str, home: Path, words: Path
) -> None:
    seen = {}
    for account in ("ann", "bob", "ann", "bob"):
        command = ["--", *shelf(words)]
        if how == "option":
            command = wrap_command(home, "--env", f"ACCOUNT={account}", *command)
        else:
            command = ["env", f"ACCOUNT={account}", *wrap_command(home, *command)]
        with Piped(command) as wrap:
            wrap.initialize()
            tools = [tool["name"] for tool in wrap.ask("tools/list")["result"]["tools"]]
            assert tools[-1] == f"of-{account}"
            seen[account] = tools
            until(lambda: len(stored(home)) == len(seen), "nothing is kept")
    assert len(stored(home)) == 2


def test_two_accounts_at_a_url_never_share_a_catalog(home: Path) -> None:
    with listening(bad("http", "plain")) as url:
        for number, token in enumerate(("ann", "bob"), 1):
            filled(home, "--header", f"Authorization: Bearer {token}", url)
            assert len(stored(home)) == number
        with Standing(home, "--header", "Authorization: Bearer ann", url) as wrap:
            wrap.initialize()
            wrap.tools()
        assert len(stored(home)) == 2


@pytest.mark.slow
def test_a_catalog_cut_anywhere_is_set_aside_and_made_anew(home: Path, words: Path) -> None:
    tools = filled(home, "--", *shelf(words))
    (path,) = stored(home)
    whole = path.read_bytes()
    places = list(range(0, len(whole), 64))
    for cut in places[:: max(1, len(places) // CUTS)]:
        path.write_bytes(whole[:cut])
        with Standing(home, "--", *shelf(words)) as wrap:
            wrap.initialize()
            assert wrap.tools() == tools
            until(lambda: path.exists() and path.stat().st_size >= len(whole) // 2, "not made anew")
            assert wrap.stderr().count("renamed to") == 1, cut
    assert list(home.rglob("*.corrupt-*"))
    assert filled_again(home, words) == tools


def test_a_full_disk_costs_the_memory_and_nothing_else(home: Path, words: Path) -> None:
    many = " ".join(f"tool-{number}" for number in range(200))
    words.write_text(f"announce one {many}")
    limited = [
        sys.executable,
        "-c",
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "os.execvp(sys.argv[1], sys.argv[1:])",
        *wrap_command(home, "--", *shelf(words)),
    ]
    with Piped(limited) as wrap:
        wrap.initialize()
        assert len(wrap.ask("tools/list")["result"]["tools"]) == 202
        until(lambda: "cannot be written" in wrap.stderr(), "it does not say so")
        called = wrap.ask("tools/call", {"name": "one"})
        assert called["result"]["content"][0]["text"] == "one"
        words.write_text(f"announce one two {many}")
        wrap.ask("tools/call", {"name": "announce"})
        until(lambda: len(wrap.ask("tools/list")["result"]["tools"]) == 203, "no news")
        # The catalog and the history are reported once each, and then what is new.
        assert wrap.stderr().count(" cannot be written: ") == 2, wrap.stderr()
        assert wrap.stderr().count("\n") <= 3, wrap.stderr()
    assert stored(home) == []
    assert not list(home.rglob("*.draft"))


def test_without_a_cache_nothing_of_the_server_is_written(home: Path, words: Path) -> None:
    filled(home, "--", *shelf(words))
    (path,) = stored(home)
    before = path.read_bytes()
    words.write_text("two announce")
    with Standing(home, "--no-cache", "--", *shelf(words)) as wrap:
        wrap.initialize()
        assert wrap.tools() == ["two", "announce"]
        wrap.said("announce")
        wrap.tools()
    assert stored(home) == [path]
    assert path.read_bytes() == before


def test_a_server_that_changed_since_is_told_of_once_and_remembered(
    home: Path, words: Path
) -> None:
    filled(home, "--", *shelf(words))
    words.write_text("one new")
    with Standing(home, "--", *shelf(words)) as wrap:
        wrap.initialize()
        assert wrap.tools() == ["lists", "announce", "one"]
        assert wrap.said("one") == "one"  # which starts it, and so it is seen to be another
        until(lambda: wrap.tools() == ["one", "new"], "the list stays old")
        wrap.said("one")
        told = [message["method"] for message in wrap.received_before() if "method" in message]
        assert told == ["notifications/tools/list_changed"]
        until(lambda: b'"new"' in stored(home)[0].read_bytes(), "it is not remembered")
    assert filled_again(home, words) == ["one", "new"]


SECRET = "hunter2-is-no-good-9c1f"


def test_no_value_of_the_environment_is_written_or_shown(home: Path, words: Path) -> None:
    command = ["env", f"API_TOKEN={SECRET}", f"API_URL=https://u:{SECRET}@example.com"]
    log = home / "state" / "calls"
    with Piped([*command, *wrap_command(home, "--log", str(log), "--", *shelf(words))]) as wrap:
        wrap.initialize()
        wrap.ask("tools/call", {"name": "one", "arguments": {"token": SECRET}})
        until(lambda: stored(home), "nothing is kept")
        ours = [wrap.process.pid, *children(wrap.process.pid)]
        assert len(ours) == 3, "we, the server, and the guardian"
        shown = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in ours]
    files = [path for path in home.rglob("*") if path.is_file()]
    assert log in files
    assert stored(home)[0] in files
    for content in (*shown, *(path.read_bytes() for path in files)):
        assert SECRET.encode() not in content
    assert SECRET not in wrap.stderr()
