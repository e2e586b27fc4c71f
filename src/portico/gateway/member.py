"""One configured server in the gateway: how it is reached, what it offers, and how it fares."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from portico.catalog.catalog import Catalog
from portico.catalog.hidden import revealed
from portico.catalog.history import History
from portico.catalog.identity import upstream_key
from portico.catalog.reveal import Hidden
from portico.catalog.share import Share
from portico.config.schema import Server
from portico.gateway.succession import Successor
from portico.model.errors import McpError, TargetError
from portico.model.offer import Offer
from portico.protocol.eras import members
from portico.upstream.configured import address
from portico.upstream.opening import Limits
from portico.upstream.plan import Plan
from portico.upstream.views import Memory

if TYPE_CHECKING:
    from portico.upstream.wire import Address

GATEWAY = "portico/gateway"
"""The capability by which a gateway says which one it is."""
_KINDS = ("tools", "resources", "prompts")
_WORDS = ("title", "description", "tags")
_MOST_WARNINGS = 20
_MOST_NAME = 100

Heard = Callable[[str, str], None]
"""Gets a server's name and a line of its stderr."""
Reach = Callable[[Server, Heard], "Address"]


class Catalogs(Memory, Protocol):
    """Where the offers of all members outlive the process."""

    def latest(self, key: str) -> Offer | None:
        """What the same server saved last, whatever its arguments were."""
        ...


class _Kept:
    """The memory of one member, as long as that is in the config."""

    def __init__(self, memory: Catalogs, *, is_complete: bool) -> None:
        """`is_complete` unless a value is missing that is part of its key."""
        self._memory = memory
        self._is_complete = is_complete
        self.is_over = False

    def load(self, key: str) -> Offer | None:
        """What was last saved."""
        return self._memory.load(key) if self._is_complete else self._memory.latest(key)

    def save(self, key: str, offer: Offer) -> bool:
        """Keep it; False if that failed."""
        return not self.is_over and self._memory.save(key, offer)


class Member:
    """A server of the config, from the time it is there to the time it is gone."""

    def __init__(
        self,
        entry: Server,
        *,
        name_limit: int,
        max_tools: int,
        memory: Catalogs | None,
        secret: bytes,
        info: dict[str, Any],
        report: Callable[[str], None],
        heard: Heard,
        reach: "Reach | None" = None,
        gateway: str = "",
        history: History | None = None,
        config: str = "",
    ) -> None:
        """`reach` says where it is; by default, where the config does. `gateway` is whose member
        it is; `history` knows what it offered before; `config` is the file that has it."""
        self.entry = entry
        self.name = entry.name
        self.problem = entry.problem
        """Why it could not be asked the last time; empty if it could."""
        self.asked: asyncio.Future[None] | None = None
        """Done when it has answered; None unless it is being asked what it offers."""
        self._askers = 0
        self._name_limit = name_limit
        self._gateway = gateway
        self._share: Share | None = None
        self._seen: Catalog | None = None
        is_complete = not entry.problem
        self._memory = None if memory is None else _Kept(memory, is_complete=is_complete)
        self.upstream = Successor(
            (reach or _address)(entry, heard),
            _plan(entry, info, max_tools),
            memory=self._memory,
            key=lambda view: _key(entry, secret, view, config),
            report=report,
            history=history,
        )

    def leave(self) -> None:
        """Keep nothing on disk from now on: the next server of this name does."""
        if self._memory is not None:
            self._memory.is_over = True

    def takes(self, entry: Server) -> bool:
        """Go on with another entry, if only the words for people and models are others in it."""
        words = {key: getattr(self.entry, key) for key in _WORDS}
        if msgspec.structs.replace(entry, **words) != self.entry:
            return False
        self.entry = entry
        return True

    @property
    def share(self) -> Share | None:
        """What it offers, as far as that is known."""
        catalog = self._offered()
        if catalog is None:
            return None
        if self._seen is not catalog:
            self._seen = catalog
            if self._share is None or not catalog.offer.same(self._share.offer):
                self._share = Share(self.name, catalog.offer, self._name_limit)
        return self._share

    @property
    def is_pending(self) -> bool:
        """True if it never said which tools it has."""
        return self._offered() is None or self.lacks_tools

    @property
    def lacks_tools(self) -> bool:
        """True if it has tools, as it says, but could not list them."""
        catalog = self.upstream.offered()
        return catalog is not None and "tools" in _unlisted(catalog)

    @property
    def is_confirmed(self) -> bool:
        """True if it said so to us, not only to whoever ran before."""
        catalog = self.upstream.offered()
        return catalog is not None and catalog.confirmed

    def _offered(self) -> Catalog | None:
        """What it said last; nothing of a server that is this very gateway again."""
        catalog = self.upstream.offered()
        return None if catalog is None or self._is_circular(catalog) else catalog

    def _is_circular(self, catalog: Catalog) -> bool:
        said = catalog.offer.introduction
        if not self._gateway or self._gateway.encode() not in said:
            return False
        capabilities = members(members(said).get("capabilities", b""))
        found = members(members(capabilities.get("experimental", b"")).get(GATEWAY, b""))
        return _text(found.get("id", b"")) == self._gateway

    @property
    def about(self) -> str:
        """What it is for, in the words of the config: those of the server are not ours."""
        return self.entry.description or self.entry.title

    async def survey(self) -> None:
        """Ask it for all it offers; what goes wrong is kept as its problem."""
        if self.entry.problem:
            return  # only another config, or another environment, can help
        if self.asked is None:
            self.asked = asyncio.get_running_loop().create_future()
        self._askers += 1
        try:
            await self.upstream.survey()
        except (McpError, TargetError) as error:
            put_off = isinstance(error, TargetError) and error.kind in ("backoff", "breaker")
            if not put_off or not self.problem:  # else why it failed is known, and says more
                self.problem = str(error)
        else:
            self.problem = self.missing()
        finally:
            self._askers -= 1
            if not self._askers:
                self.asked.set_result(None)
                self.asked = None

    def missing(self) -> str:
        """What it has, as it says, but could not list."""
        catalog = self.upstream.offered()
        if catalog is None:
            return ""
        if self._is_circular(catalog):
            return f"{self.name} is this gateway itself; remove it from the config"
        missing = _unlisted(catalog)
        if not missing:
            return ""
        return f"{self.name} could not list its {' and '.join(missing)}; the log says why"

    def warnings(self) -> list[str]:
        """The definitions in which something is hidden, a line each."""
        catalog = self._offered()
        hidden = () if catalog is None else catalog.hidden
        lines = [_warning(self.name, one) for one in hidden[:_MOST_WARNINGS]]
        more = len(hidden) - len(lines)
        return [*lines, f"{self.name}: {more} more have hidden characters"] if more else lines

    def status(self) -> dict[str, Any]:
        """How it fares, for people and programs."""
        catalog = self._offered()
        told = self.upstream.status()
        lists = {} if catalog is None else catalog.offer.lists
        age = None if catalog is None else round(max(0.0, time.time() - catalog.offer.taken), 1)
        return {
            **told,
            "server": self.name,
            "title": self.entry.title,
            "tags": self.entry.tags,
            "state": self._state(told),
            "tools": len(lists["tools"].keys) if "tools" in lists else 0,
            "lists": {kind: len(listed.keys) for kind, listed in lists.items()},
            "omitted": {kind: listed.omitted for kind, listed in lists.items() if listed.omitted},
            "age_s": age,
            "pending": self.is_pending,
            "error": self.problem,
        }

    def _state(self, told: dict[str, Any]) -> str:
        if told["breaker"] == "open":
            return "failing"
        states = [connection["state"] for connection in told["connections"]]
        for state in ("active", "connected", "connecting", "idle"):
            if state in states:
                return state
        return "failed" if self.problem else "stopped"


def _warning(server: str, hidden: Hidden) -> str:
    kind = hidden.kind.removesuffix("s") if hidden.key else hidden.kind
    name = " ".join(revealed(hidden.key).split())[:_MOST_NAME]
    words = f"{server}: hidden characters in {kind} {name}".rstrip()
    if not hidden.in_values:
        return f"{words}; they are shown escaped"
    return f"{words}; those in values that go back to the server are left as they are"


def _unlisted(catalog: Catalog) -> list[str]:
    """The kinds that a server has, as it says, but of which there is no list."""
    offer = catalog.offer
    without = [kind for kind in _KINDS if kind not in offer.lists]
    if not without:
        return []
    declared = members(members(offer.introduction).get("capabilities", b""))
    return [kind for kind in without if kind in declared]


def _plan(entry: Server, info: dict[str, Any], max_tools: int) -> Plan:
    times = entry.timeouts
    return Plan(
        limits=Limits(init_s=times.init, list_s=times.list, call_s=times.call),
        idle_s=times.idle or None,
        instances=entry.instances,
        max_in_flight=entry.max_in_flight,
        sharing=entry.sharing,
        era=entry.era,
        is_process=not entry.url,
        prefers_modern=True,
        may_ask=entry.may_ask,
        max_items=entry.max_tools or max_tools,
        info=info,
        reveals=True,
        allows=entry.tools.allows if entry.tools.allow or entry.tools.deny else None,
    )


def _address(entry: Server, heard: Heard) -> "Address":
    """Where the config says that it is."""
    return address(entry, lambda line: heard(entry.name, line))


def _key(entry: Server, secret: bytes, view: str, config: str) -> str:
    """Its name on disk: the same server under two names is two accounts, and a server with other
    arguments has the same owner."""
    mark = f"#{entry.name}#{view}"
    owner = upstream_key(secret, argv=("owner", os.path.realpath(config), mark))[:16]
    if entry.url:
        key = upstream_key(secret, url=f"{entry.url}{mark}", headers=entry.headers)
    else:
        argv = (entry.command, *entry.args, mark)
        key = upstream_key(secret, argv=argv, cwd=entry.cwd or "", env=entry.env)
    return f"{owner}-{key}"


def _text(raw: bytes) -> str:
    try:
        return revealed(msgspec.json.decode(raw, type=str)).strip() if raw else ""
    except msgspec.DecodeError:
        return ""
