"""Real windows of a client have one gateway and one set of servers, whichever of them ends."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from portico.gateway.endpoints import metatool_definitions
from portico.upstream.process.process_tree import processes
from tests.serve.owners import owners_in
from tests.support.running import WAIT_S, Child, Piped, initialize_params
from tests.support.shared import ROOT, unavailable
from tests.support.soak import times
from tests.wrap.faults import alive, descendants
from tests.wrap.faults import until as comes
from tests.wrap.standing import until

pytestmark = pytest.mark.slow

SERVER = ROOT / "tests" / "serve" / "servers" / "counting.py"
SERVERS = ("one", "two")
TOOLS = 3 * len(SERVERS)
HOLD = {"name": "one__hold", "arguments": {}}
GONE_S = 8.0
"""How long anything may stay after the last window: the promise is 2 s."""


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

    def open(self, *options: str, by: Sequence[str] = (), **env: str) -> Piped:
        """One more window, its client introduced; `by` is a command that runs it."""
        window = self.start(*options, by=by, **env)
        window.initialize()
        return window

    def start(self, *options: str, by: Sequence[str] = (), **env: str) -> Piped:
        """One more window, in a process group of its own as clients start it."""
        variables = [f"{key}={value}" for key, value in env.items()]
        portico = [sys.executable, "-m", "portico", "serve", "--config", str(self.config)]
        expose = () if "--expose" in options else ("--expose", "all")
        command = ["env", f"PORTICO_HOME={self.home}", *variables, *portico, *expose]
        window = Piped(["setsid", "--wait", *by, *command, *options])
        return self.stack.enter_context(window)

    def starts(self, name: str) -> list[int]:
        """The processes of a server, in the order they were started."""
        book = self.books[name]
        return [int(line) for line in book.read_text().split()] if book.exists() else []

    def processes(self) -> set[int]:
        """All processes of this gateway that live: windows, owners and servers."""
        found = set()
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit():
                    words = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                    if str(self.home.parent).encode() in words:
                        found.add(int(folder.name))
        return alive(found)

    def owners(self) -> set[int]:
        """The processes that have a gateway: theirs is the word in a lock."""
        return owners_in(self.home / "state")

    def owner(self) -> int:
        """The only one of them."""
        (pid,) = self.owners()
        return pid

    def log(self, name: str) -> str:
        """What is in a log of the gateway's."""
        return (self.home / "state" / "logs" / name).read_text()


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    made = Windows(tmp_path)
    with made.stack:
        yield made
    comes(lambda: not made.processes(), GONE_S)
    left = made.processes()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, "a process outlived the last window"


def who(window: Piped, name: str = "one") -> int:
    """Which process of a server answers this window."""
    result = window.ask("tools/call", {"name": f"{name}__who", "arguments": {}})["result"]
    return int(result["content"][0]["text"])


def known(window: Piped) -> None:
    """Wait until the window's gateway knows its servers."""
    until(lambda: len(window.ask("tools/list")["result"]["tools"]) >= TOOLS, "tools are missing")


def test_status_and_ps_show_the_owner_and_its_windows_apart(windows: Windows) -> None:
    opened = [windows.open() for _ in range(2)]
    assert who(opened[0])  # a server runs
    pids = [window.process.pid for window in opened]
    pids = sorted(pid for one in pids for pid in ({one} | descendants(one)) if is_window(pid))
    owner = windows.owner()
    shown = subprocess.run(
        [sys.executable, "-m", "portico", "status", "--config", str(windows.config)],
        env={**os.environ, "PORTICO_HOME": str(windows.home)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert f"owner {owner}, 2 windows: {pids[0]}, {pids[1]}\n" in shown
    assert words_of(owner)[1:5] == ["-P", "-m", "portico", "owner"]
    assert str(windows.config) in words_of(owner)
    assert any("portico-guardian" in words_of(pid) for pid in descendants(owner))


def words_of(pid: int) -> list[str]:
    """The command line of a process, as `ps` shows it."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def is_window(pid: int) -> bool:
    return words_of(pid)[1:4] == ["-m", "portico", "serve"]


def test_an_idle_gateway_rests(windows: Windows) -> None:
    opened = [windows.open() for _ in range(2)]
    known(opened[0])
    owner = windows.owner()
    servers = [pid for name in SERVERS for pid in windows.starts(name)]
    everyone = {owner, *(window.process.pid for window in opened)}
    everyone |= {below for one in everyone for below in descendants(one)} - {*servers}
    everyone |= {pid for pid in twins(everyone) if pid not in servers}
    assert comes(lambda: wakeups_per_s(everyone) <= 5, 60), wakeups_per_s(everyone)


def twins(pids: set[int]) -> set[int]:
    """The processes in the groups of these: the twin is nobody's child."""
    return {one for one, (_, group, *_) in processes().items() if group in pids} - pids


def wakeups_per_s(pids: set[int]) -> float:
    """How often all threads of these processes gave up the processor by themselves, for 3 s."""
    counts = []
    for _ in range(2):
        counts.append(sum(map(switches, pids)))
        if len(counts) == 1:
            time.sleep(3)  # the time that is measured
    return (counts[1] - counts[0]) / 3


def switches(pid: int) -> int:
    found = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):
            [line] = [x for x in status.read_text().splitlines() if x.startswith("voluntary_ctxt")]
            found += int(line.split()[1])
    return found


def test_five_windows_share_one_set_of_servers_and_leave_nothing(windows: Windows) -> None:
    opened = [windows.open() for _ in range(5)]
    for window in opened:
        known(window)
    for name in SERVERS:
        assert {who(window, name) for window in opened} == set(windows.starts(name))
        assert len(windows.starts(name)) == 1
    for window in opened:
        closed(window)
    assert comes(lambda: not windows.processes(), 4 * 5), windows.processes()
    assert list((windows.home / "state" / "children").iterdir()) == []


def closed(window: Piped) -> None:
    """As a client ends that is told to."""
    window.close_input()
    window.process.wait(WAIT_S)


def killed_with_all_it_started(window: Piped) -> None:
    """As a client's process group and all that descends from it are ended."""
    tree = {window.process.pid, *descendants(window.process.pid)}
    for pid in tree:
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) != os.getpgid(0):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
    for pid in alive(tree):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    window.process.wait(WAIT_S)


@pytest.mark.soak
@pytest.mark.parametrize("ended", [closed, killed_with_all_it_started])
def test_a_long_call_outlives_the_window_that_started_the_gateway(
    ended: Callable[[Piped], None],
    windows: Windows,
    record_property: Callable[[str, object], None],
) -> None:
    first, other = windows.open(), windows.open()
    known(other)
    owner, server = windows.owner(), who(other)
    seconds = times(2, 20)
    long = {"name": "one__work", "arguments": {"seconds": seconds}}
    id = other.start("tools/call", long)
    who(other)  # the call is under way
    ended(first)
    answer = other.answer_to(id)
    assert answer["result"]["content"][0]["text"] == f"worked {seconds} s"
    assert (windows.owner(), who(other)) == (owner, server)
    assert other.stderr() == ""
    closed(other)
    assert comes(lambda: not windows.processes(), 4 * 5), windows.processes()
    record_property("soak", f"a call of {seconds} s completed, 0 processes left")


@pytest.mark.soak
def test_owners_that_are_killed_leave_no_call_without_an_answer_and_no_orphan(
    windows: Windows, record_property: Callable[[str, object], None]
) -> None:
    opened = [windows.open() for _ in range(2)]
    rounds = times(5, 50)
    failed = 0
    for _ in range(rounds):
        for window in opened:
            known(window)
        held = [window.start("tools/call", HOLD) for window in opened]
        old, servers = windows.owner(), {who(opened[0]), who(opened[1], "two")}
        os.kill(old, signal.SIGKILL)
        for window, id in zip(opened, held, strict=True):
            assert window.answer_to(id)["error"]["data"]["kind"] == "closed"
            failed += 1
            assert [m for m in window.received_before() if "id" in m] == []
        for window in opened:
            known(window)
        assert len({who(window) for window in opened}) == 1
        assert windows.owner() != old
        assert comes(lambda: not alive({old, *servers}), GONE_S), "an orphan"  # noqa: B023
    assert [window.stderr() for window in opened] == ["", ""]
    record_property("soak", f"{rounds} owners killed, {failed} calls failed once, 0 orphans")


def test_ten_windows_at_once_have_one_owner(windows: Windows) -> None:
    opened = [windows.start() for _ in range(10)]
    ids = [window.start("initialize", initialize_params("2025-11-25")) for window in opened]
    for window, id in zip(opened, ids, strict=True):
        assert "result" in window.answer_to(id)
        window.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    known(opened[-1])
    assert len({who(window) for window in opened}) == 1
    assert [len(windows.starts(name)) for name in SERVERS] == [1, 1]
    assert len(windows.owners()) == 1
    assert [window.stderr() for window in opened] == [""] * 10


# Sandboxes.


def sandbox(*options: str) -> list[str]:
    """A sandbox that ends all it has started with its first process."""
    if shutil.which("bwrap") is None:
        unavailable("bwrap, of bubblewrap, is not there")
    command = ["bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--die-with-parent"]
    command += ["--unshare-pid", *options, "--"]
    probe = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        unavailable(f"no sandbox can be made here: {probe.stderr}")
    return command


def test_in_a_sandbox_with_a_read_only_state_folder_each_window_serves_by_itself(
    windows: Windows,
) -> None:
    (windows.home / "state").mkdir(parents=True)
    state = str(windows.home / "state")
    opened = [windows.open(by=sandbox("--ro-bind", state, state)) for _ in range(2)]
    for window in opened:
        known(window)
    assert [len(windows.starts(name)) for name in SERVERS] == [2, 2]
    for window in opened:
        assert window.stderr().count("cannot join the running gateway: ") == 1
        assert window.stderr().count("starting separate servers for this client") == 1


def test_a_gateway_that_ends_with_a_sandbox_is_started_again_by_the_next_window(
    windows: Windows,
) -> None:
    inside, outside = windows.open(by=sandbox()), windows.open()
    known(outside)
    before = windows.processes() & descendants(inside.process.pid)
    assert len(before) >= 4, "a window, an owner and two servers"
    assert len(windows.starts("one")) == 1
    held = outside.start("tools/call", HOLD)
    who(outside)
    killed_with_all_it_started(inside)
    assert outside.answer_to(held)["error"]["data"]["kind"] == "closed"
    known(outside)
    who(outside)
    assert len(windows.starts("one")) == 2
    assert comes(lambda: not alive(before), GONE_S)
    assert outside.stderr() == ""


def test_gateways_in_sandboxes_are_told_apart_though_their_process_numbers_are_the_same(
    windows: Windows,
) -> None:
    mine = windows.config
    one = windows.open(by=sandbox())
    windows.config = mine.with_name("other.toml")
    windows.config.write_text(mine.read_text().replace("servers.one", "servers.three"))
    other = windows.open(by=sandbox())
    for window in (one, other):
        known(window)
    windows.config = mine
    late = windows.open()
    known(late)
    assert names(late) == names(one) != names(other)


# What the operator is told.


def test_what_the_gateway_reports_is_read_at_every_window_and_in_the_log(windows: Windows) -> None:
    opened = [windows.open() for _ in range(2)]
    known(opened[1])
    windows.config.write_text("[servers.one]\ncommand = 1\n")
    words = "portico: config not reloaded; keeping the previous one:"
    for window in opened:
        assert comes(lambda: words in window.stderr()), window.stderr()  # noqa: B023
    assert words in windows.log("owner.log")
    assert who(opened[0]) == who(opened[1])
    assert [window.stderr().count(words) for window in opened] == [1, 1]


# Gateways of their own.


def test_a_window_alone_has_servers_of_its_own(windows: Windows) -> None:
    shared, alone = windows.open(), windows.open("--alone")
    known(shared)
    known(alone)
    assert who(shared) != who(alone)
    assert len(windows.owners()) == 1


def test_another_config_is_another_gateway(windows: Windows) -> None:
    one = windows.open()
    text = windows.config.read_text()
    windows.config = windows.config.with_name("other.toml")
    windows.config.write_text(text)
    other, again = windows.open(), windows.open()
    for window in (one, other):
        known(window)
    assert who(one) != who(other) == who(again)
    assert len(windows.owners()) == 2


def test_another_account_in_the_environment_is_another_gateway(windows: Windows) -> None:
    text = windows.config.read_text()
    windows.config.write_text(f'{text}env = {{ ACCOUNT = "${{ACCOUNT}}" }}\n')
    ana, ben = windows.open(ACCOUNT="ana"), windows.open(ACCOUNT="ben")
    known(ana)
    known(ben)
    assert who(ana, "two") != who(ben, "two")
    again = windows.open(ACCOUNT="ben")
    assert who(again, "two") == who(ben, "two")
    assert len(windows.owners()) == 2


@pytest.mark.parametrize("name", ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"])
def test_another_home_is_another_gateway(windows: Windows, tmp_path: Path, name: str) -> None:
    usual, other = windows.open(), windows.open(**{name: str(tmp_path)})
    known(usual)
    known(other)
    assert who(usual, "two") != who(other, "two")
    again = windows.open(**{name: str(tmp_path)})
    assert who(again, "two") == who(other, "two")
    assert len(windows.owners()) == 2


def test_a_variable_that_the_config_takes_only_now_parts_no_windows(windows: Windows) -> None:
    first = windows.open(ACCOUNT="ana")
    known(first)
    text = windows.config.read_text()
    windows.config.write_text(f'{text}env = {{ ACCOUNT = "${{ACCOUNT}}" }}\n')
    second = windows.open(ACCOUNT="ana")
    assert who(second, "one") == who(first, "one")
    assert len(windows.starts("one")) == 1


META = {*metatool_definitions.NAMES}


def names(window: Piped) -> set[str]:
    """What it is shown."""
    return {tool["name"] for tool in window.ask("tools/list")["result"]["tools"]}


def test_each_window_is_shown_what_it_asked_for_from_one_set_of_servers(windows: Windows) -> None:
    everything, few = windows.open(), windows.open("--expose", "search")
    known(everything)
    assert META & names(everything) == set()
    assert names(few) == META
    assert len(windows.starts("one")) == 1


def test_what_was_decided_for_a_window_stays_with_the_next_owner(windows: Windows) -> None:
    first, second = (windows.open("--expose", "auto") for _ in range(2))
    learnt = windows.open()
    known(learnt)
    shown = names(learnt)
    assert META & shown == set()
    assert names(first) == names(second) == shown  # nothing was known, so it was waited for
    os.kill(windows.owner(), signal.SIGKILL)
    assert names(first) == names(second) == names(learnt) == shown
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
