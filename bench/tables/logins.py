"""Logins: the cost of a call with one, and of a start with twenty."""

import time
from contextlib import ExitStack
from pathlib import Path

from bench import workload
from bench.contenders import PORTICO, Asked, Contender
from bench.cores import one_core
from bench.pipe import PipeServer, Started
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.tables.wrap_drive import ProxyPipe, upstream_url
from bench.workload import WrongAnswer
from portico.upstream.auth.login import Login, LoginFacts, LoginPlace
from portico.upstream.auth.login_store import LoginStore

HEADING = "Logins"

_FIXED, _LOGIN = "wrap of a URL, a header", "wrap of a URL, a login"
_WITHOUT, _WITH = "serve, 20 servers", "serve, 20 servers with logins"
_CALL, _CPU, _WALL = "call CPU us", "start CPU ms", "spawn to list ms"
_TOKEN = "a-token-of-the-usual-length-0123456789abcdef"
_SERVERS, _LAPS = 20, 6
_CALL_US, _START_MS = 5, 10
_ABOUT = (
    "Driver, upstream and contender share one core and take turns; the added time is the median of "
    "the differences.",
    "The login has a refresh token and expires in an hour, so nothing is refreshed meanwhile. The "
    "gateway starts with `--no-refresh`: no server is contacted.",
)


def measure(scale: Scale) -> Section:
    """CPU of calls with a fixed header and with a login, and of starts with and without logins."""
    section, samples = Section(notes=list(_ABOUT)), Samples()
    with Workspace() as fixed, Workspace() as logged_in:
        try:
            _calls(fixed, logged_in, scale, samples)
            _starts(fixed, logged_in, scale, samples)
        except WrongAnswer as wrong:
            section.notes.append(f"not measured to the end: {wrong}")
    section.tables += [_call_table(samples), _start_table(samples)]
    section.budgets += budgets(samples)
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def store_login(workspace: Workspace, url: str, name: str = "") -> None:
    """Store a login, as the command does."""
    place = LoginPlace(url, name)
    facts = LoginFacts(
        id="0123456789abcdef",
        place=place.shown,
        issuer="https://id.example",
        account="ann@example.org",
        expires=time.time() + 3600,
        refreshes=True,
    )
    login = Login(facts=facts, url=url, access=_TOKEN, refresh=_TOKEN, life_s=3600)
    LoginStore(str(workspace.home / "state")).save(place.key, login)


def _calls(fixed: Workspace, logged_in: Workspace, scale: Scale, samples: Samples) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(upstream_url(fixed))
        store_login(logged_in, url)
        header = ("--header", f"Authorization: Bearer {_TOKEN}")
        running = []
        for name, workspace, words in ((_FIXED, fixed, header), (_LOGIN, logged_in, ())):
            argv = (*PORTICO, "wrap", *words, url)
            server = ProxyPipe(Contender(name, argv, asked=Asked.LEGACY), workspace)
            stack.enter_context(server.process)
            server.open()
            server.check_call()
            server.load(server.call_request, scale.calls // 10)  # warm up
            running.append(server)
        for server in interleaved(running, _LAPS * scale.rounds):
            with one_core(server.process.everyone()):
                load = server.load(server.call_request, scale.calls // _LAPS)
            samples.add(server.contender.name, _CALL, load.cpu_us)


class _Start(PipeServer):
    """A gateway, up to its first list."""

    def open(self) -> Started:
        self._answer_to(workload.initialize_request(0))
        self._write(workload.INITIALIZED + b"\n")
        self.ask(self.list_request)
        return Started(time.perf_counter() - self._spawned, self.process.cpu_s())


def _starts(without: Workspace, with_logins: Workspace, scale: Scale, samples: Samples) -> None:
    for number in range(_SERVERS):
        store_login(with_logins, _url(number), f"server{number}")
    cases = [(_WITHOUT, without, _config(without)), (_WITH, with_logins, _config(with_logins))]
    for name, workspace, config in interleaved(cases, scale.start_rounds):
        argv = (*PORTICO, "serve", "--alone", "--no-refresh", "--config", str(config))
        server = _Start(Contender(name, argv, asked=Asked.LEGACY), workspace)
        with server.process:
            started = server.open()
        samples.add(name, _CPU, started.cpu_s * 1e3)
        samples.add(name, _WALL, started.wall_s * 1e3)


def _url(number: int) -> str:
    return f"https://server{number}.example/mcp"


def _config(workspace: Workspace) -> Path:
    path = workspace.path / "portico.toml"
    lines = [f'[servers.server{n}]\nurl = "{_url(n)}"\n' for n in range(_SERVERS)]
    path.write_text("".join(lines))
    return path


def _call_table(samples: Samples) -> Table:
    rows = [[name, samples.cell(name, _CALL)] for name in (_FIXED, _LOGIN)]
    return Table("A call over stdio to a server at a URL", ("", _CALL), rows)


def _start_table(samples: Samples) -> Table:
    columns = (_CPU, _WALL)
    rows = [[n, *(samples.cell(n, column) for column in columns)] for n in (_WITHOUT, _WITH)]
    return Table("The start of a gateway", ("", *columns), rows)


def budgets(samples: Samples) -> list[Budget]:
    """The promises: a login costs next to nothing."""
    call = samples.difference(_LOGIN, _FIXED, _CALL)
    start = samples.difference(_WITH, _WITHOUT, _CPU)
    return [
        at_most("a call with a login, more CPU than with a header", call, _CALL_US, " us"),
        at_most("serve, a start with 20 logins: more CPU", start, _START_MS, " ms"),
    ]
