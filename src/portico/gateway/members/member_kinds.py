"""The factories of members, by kind of entry."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from portico.core.catalog.history import History
from portico.core.catalog.upstream_key import upstream_key
from portico.core.config.schema import ComponentEntry, ServerEntry
from portico.core.model.offer import Offer
from portico.gateway.members.in_process import InProcessComponent
from portico.gateway.members.in_process_server import InProcessEntry, InProcessServer
from portico.gateway.members.member import Entry, Member
from portico.library.components.component_upstream import ComponentUpstream
from portico.library.components.own_process import as_server, checked, keeps_sessions
from portico.upstream.connections.catalog_views import Memory
from portico.upstream.connections.configured_address import address, configured_limits
from portico.upstream.connections.installs import Installs
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.relay import FinishTask
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.credentials import account_of

if TYPE_CHECKING:
    from portico.upstream.wires.wire import Address

StderrSink = Callable[[str, str], None]
"""Receives a server's name and a line of its stderr."""
AddressResolver = Callable[[ServerEntry, StderrSink], "Address"]


class Catalogs(Memory, Protocol):
    """The store in which the offers of all members outlive the process."""

    def latest(self, key: str) -> Offer | None:
        """Load the last offer of the same server, whatever its arguments were."""
        ...


class MemberEnvironment(Struct, frozen=True, kw_only=True):
    """The parts that all members of a gateway share."""

    info: Mapping[str, Any]
    """The client info that servers receive."""
    memory: Catalogs | None
    secret: bytes
    report: Callable[[str], None]
    on_stderr: StderrSink
    installs: Installs = field(default_factory=Installs)
    """The turns of their installers."""
    address_of: AddressResolver | None = None
    """Returns the address of a server; by default, the one in the config."""
    gateway: str = ""
    """The id by which the gateway recognises itself."""
    history: Callable[[str], History]
    """Returns the history of a server's definitions."""
    folder: str = ""
    """The folder of the gateway, for clients that have none of their own; empty if unknown."""
    finish_task: Callable[[str, str], FinishTask] | None = None
    """Returns the function that waits for unrequested tasks of a server, in a folder."""


def no_history(server: str) -> History:
    """Return an empty history that is not saved."""
    return History()


class MemberLimits(Struct, frozen=True):
    """The settings of the config that apply to all members."""

    path: str
    name_limit: int | None
    """The limit of exposed names; None for plain names, without a prefix."""
    max_tools: int


def member_of(entry: Entry, environment: MemberEnvironment, limits: MemberLimits) -> Member:
    """Create the member of an entry."""
    return _KINDS[type(entry)](entry, environment, limits)


def _local(entry: InProcessEntry, environment: MemberEnvironment, limits: MemberLimits) -> Member:
    limit = None if entry.is_builtin else limits.name_limit
    return Member(entry, InProcessServer(entry.name, entry.server), limit)


def _server(entry: ServerEntry, environment: MemberEnvironment, limits: MemberLimits) -> Member:
    made = ComponentUpstream if entry.is_sandboxed else Upstream
    return _upstream(entry, entry, environment, limits, made)


def _component(
    entry: ComponentEntry, environment: MemberEnvironment, limits: MemberLimits
) -> Member:
    entry = checked(entry)
    if entry.in_process:
        return Member(entry, InProcessComponent(entry), limits.name_limit)
    made = ComponentUpstream if keeps_sessions(entry) else Upstream
    return _upstream(entry, as_server(entry), environment, limits, made)


def _upstream(
    owner: Entry,
    entry: ServerEntry,
    environment: MemberEnvironment,
    limits: MemberLimits,
    made: type[Upstream] = Upstream,
) -> Member:
    """Create the member of an entry, whose server is the second one."""
    kept = _MemberMemory(environment.memory, is_complete=not entry.problem)
    history = environment.history(entry.name)
    if entry.tools.allow or entry.tools.deny:
        history.is_exposed = entry.tools.allows

    def placed(folder: str) -> tuple[Upstream, str]:
        found = entry.placed_in(folder)
        at = (environment.address_of or _address)(found, environment.on_stderr)
        upstream = made(
            at,
            _policy(entry, environment, limits.max_tools),
            memory=kept,
            key=lambda view: _key(entry, environment.secret, view, limits.path, account_of(at)),
            report=environment.report,
            history=history,
        )
        if isinstance(upstream, ComponentUpstream):
            upstream.component = f"{limits.path}#{entry.name}"
        if environment.finish_task is not None:
            upstream.finish_tasks(environment.finish_task(entry.name, folder))
        return upstream, found.cwd or ""

    upstream, cwd = placed(environment.folder)
    return Member(
        owner,
        upstream,
        limits.name_limit,
        gateway=environment.gateway,
        stop_saving=kept.end,
        cwd=cwd,
        placed=placed if entry.is_per_folder else None,
    )


_KINDS: dict[type, Callable[[Any, MemberEnvironment, MemberLimits], Member]] = {
    ServerEntry: _server,
    ComponentEntry: _component,
    InProcessEntry: _local,
}


class _MemberMemory:
    """The memory of one member in all folders, until its entry is removed."""

    def __init__(self, memory: Catalogs | None, *, is_complete: bool) -> None:
        """`is_complete` unless a value is missing that is part of its key."""
        self._memory = memory
        self._is_complete = is_complete
        self._is_over = False
        self._known: dict[str, Offer] = {}

    def load(self, key: str) -> Offer | None:
        """Load the offer saved last."""
        known = self._known.get(key)
        if known is None and self._memory is not None:
            load = self._memory.load if self._is_complete else self._memory.latest
            known = load(key)
            if known is not None:
                self._known[key] = known
        return known

    def save(self, key: str, offer: Offer) -> bool:
        """Save an offer; returns False if that failed."""
        if self._is_over:
            return False
        self._known[key] = offer
        return self._memory is not None and self._memory.save(key, offer)

    def end(self) -> None:
        """Stop saving: the next server of this name does."""
        self._is_over = True


def _policy(entry: ServerEntry, environment: MemberEnvironment, max_tools: int) -> UpstreamPolicy:
    times = entry.timeouts
    return UpstreamPolicy(
        limits=configured_limits(entry),
        installs=environment.installs,
        idle_s=times.idle or None,
        instances=entry.instances,
        max_in_flight=entry.max_in_flight,
        sharing=entry.sharing,
        era=entry.era,
        is_process=not entry.url,
        is_gateway=True,
        may_ask=entry.may_ask,
        hides_tasks=True,
        max_items=entry.max_tools or max_tools,
        info=environment.info,
        reveals=True,
    )


def _address(entry: ServerEntry, on_stderr: StderrSink) -> "Address":
    """Return the address in the config."""
    return address(entry, lambda line: on_stderr(entry.name, line))


def _key(entry: ServerEntry, secret: bytes, view: str, config: str, account: str) -> str:
    """Return the key of a server's catalog on disk: two names of one server have separate keys, and
    a server keeps its owner part when its arguments change."""
    mark = f"#{entry.name}#{view}"
    whose = ("owner", os.path.realpath(config), mark)
    owner = upstream_key(secret, argv=whose, account=account)[:16]
    if entry.url:
        url = f"{entry.url}{mark}"
        key = upstream_key(secret, url=url, headers=entry.headers, account=account)
    else:
        argv = (entry.command, *entry.args, mark)
        key = upstream_key(secret, argv=argv, cwd=entry.cwd or "", env=entry.env)
    return f"{owner}-{key}"
