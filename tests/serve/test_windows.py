"""Five windows of a client have one gateway and one set of servers, also when the first ends."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.running import Child, Piped
from tests.support.shared import ROOT
from tests.wrap.standing import until

pytestmark = pytest.mark.slow

SERVER = ROOT / "tests" / "serve" / "servers" / "counting.py"
SERVERS = ("one", "two")


class Windows:
    """What the windows of one client share: a config, and a book of servers' starts."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.books = {name: folder / name for name in SERVERS}
        self.config = folder / "portico.toml"
        self.config.write_text("\n".join(self._entry(name) for name in SERVERS))
        self.stack = ExitStack()

    def _entry(self, name: str) -> str:
        args = f'["{SERVER}", "{self.books[name]}"]'
        return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\n'

    def open(self, *options: str, **env: str) -> Piped:
        """One more window, its client introduced."""
        variables = [f"{key}={value}" for key, value in env.items()]
        portico = [sys.executable, "-m", "portico", "serve", "--config", str(self.config)]
        expose = () if "--expose" in options else ("--expose", "all")
        command = ["env", f"PORTICO_HOME={self.home}", *variables, *portico, *expose]
        window = self.stack.enter_context(Piped([*command, *options]))
        window.initialize()
        return window

    def starts(self, name: str) -> list[int]:
        """The processes of a server, in the order they were started."""
        book = self.books[name]
        return [int(line) for line in book.read_text().split()] if book.exists() else []


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    made = Windows(tmp_path)
    with made.stack:
        yield made
    deadline = time.monotonic() + 8  # the promise is 2 s
    pids = [pid for name in SERVERS for pid in made.starts(name)]
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "a server outlived its gateway"
        time.sleep(0.05)


def who(window: Piped, name: str = "one") -> int:
    """Which process of a server answers this window."""
    result = window.ask("tools/call", {"name": f"{name}__who", "arguments": {}})["result"]
    return int(result["content"][0]["text"])


def known(window: Piped) -> None:
    """Wait until the window's gateway knows its servers."""
    deadline = time.monotonic() + 30
    while len(window.ask("tools/list")["result"]["tools"]) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_five_windows_share_one_set_of_servers(windows: Windows) -> None:
    opened = [windows.open() for _ in range(5)]
    for window in opened:
        known(window)
    for name in SERVERS:
        assert {who(window, name) for window in opened} == set(windows.starts(name))
        assert len(windows.starts(name)) == 1


def test_when_the_first_is_killed_the_others_go_on(windows: Windows) -> None:
    opened = [windows.open() for _ in range(5)]
    for window in opened:
        known(window)
    first, *others = opened
    before = who(first)
    held = others[0].start("tools/call", {"name": "one__hold", "arguments": {}})
    who(others[0])
    os.kill(first.process.pid, signal.SIGKILL)
    lost = others[0].answer_to(held)
    assert lost["error"]["data"]["kind"] == "closed"
    for window in others:
        known(window)
    after = {who(window) for window in others}
    assert len(after) == 1
    assert before not in after
    assert len(windows.starts("one")) == 2


def test_a_window_alone_has_servers_of_its_own(windows: Windows) -> None:
    shared, alone = windows.open(), windows.open("--alone")
    known(shared)
    known(alone)
    assert who(shared) != who(alone)


def test_another_account_in_the_environment_is_another_gateway(windows: Windows) -> None:
    text = windows.config.read_text()
    windows.config.write_text(f'{text}env = {{ ACCOUNT = "${{ACCOUNT}}" }}\n')
    ana, ben = windows.open(ACCOUNT="ana"), windows.open(ACCOUNT="ben")
    known(ana)
    known(ben)
    assert who(ana, "two") != who(ben, "two")


def test_a_variable_that_the_config_takes_only_now_parts_no_windows(windows: Windows) -> None:
    first = windows.open(ACCOUNT="ana")
    known(first)
    text = windows.config.read_text()
    windows.config.write_text(f'{text}env = {{ ACCOUNT = "${{ACCOUNT}}" }}\n')
    second = windows.open(ACCOUNT="ana")
    assert who(second, "one") == who(first, "one")
    assert len(windows.starts("one")) == 1


META = {"search_tools", "describe_tool", "execute_tool", "refresh_tools", "gateway_status"}


def names(window: Piped) -> set[str]:
    """What it is shown."""
    return {tool["name"] for tool in window.ask("tools/list")["result"]["tools"]}


def test_each_window_is_shown_what_it_asked_for_from_one_set_of_servers(windows: Windows) -> None:
    everything, few = windows.open(), windows.open("--expose", "search")
    known(everything)
    assert META & names(everything) == set()
    assert names(few) == META
    assert len(windows.starts("one")) == 1


def test_what_was_decided_for_a_window_stays_when_another_takes_over(windows: Windows) -> None:
    first, second = (windows.open("--expose", "auto") for _ in range(2))
    learnt = windows.open()
    known(learnt)
    assert names(first) == names(second) == META  # nothing was known at the start
    first.process.kill()
    assert names(second) == META
    assert META & names(learnt) == set()
    # Who comes now finds a gateway that knew how few tools there are.
    assert names(windows.open("--expose", "auto")) == names(learnt)


def test_windows_come_to_a_gateway_over_http(windows: Windows) -> None:
    command = ["env", f"PORTICO_HOME={windows.home}", sys.executable, "-m", "portico", "serve"]
    options = ["--config", str(windows.config), "--expose", "all", "--http", "127.0.0.1:0"]
    gateway = Child([*command, *options])
    with ExitStack() as stack:
        stack.callback(gateway.stop)
        until(lambda: "serving http" in gateway.stderr(), "it does not serve")
        first, second = windows.open(), windows.open()
        known(first)
        assert who(first) == who(second), first.stderr() + second.stderr() + gateway.stderr()
        assert len(windows.starts("one")) == 1
