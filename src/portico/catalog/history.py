"""The history of one server's definitions: a digest of each, and what changed since it was known.

The first survey of a server is its baseline and reports nothing. After that a definition with
another digest *changed*, and a tool under a new name *appeared*. Removed definitions are kept, so
that one that returns with another meaning is still a change.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from portico.catalog.fingerprint import fingerprint
from portico.catalog.sanitize import sanitize_text
from portico.model.digest import blake2b
from portico.model.offer import KINDS, Offer
from portico.protocol.codec import encode
from portico.protocol.eras import members

MAX_CHANGES = 100
"""The newest are kept, one for each definition."""
MAX_RECENT = 10
RECENT_S = 30 * 86_400
"""`status` shows so many of each server, and for so long."""
_MAX_KEYS = 20_000
_MAX_VIEWS = 8
_MAX_KEY = 200
_MAX_LINES = 60
_PER_S = 3600.0
"""The log gets at most so many lines from a server in this time."""
_DUE_S = 3600.0
"""How often `last_seen` is written although nothing has changed."""
INSTRUCTIONS = "instructions"
_CHANGING = re.compile(rb'"(?:size|lastModified)"')
_ERA = re.compile("[a-z]*")


class SeenDefinition(Struct, array_like=True):
    """One definition as it was last seen."""

    digest: str
    first_seen: float
    last_seen: float


class SeenDefinitions(Struct):
    """All that one view of a server has shown."""

    since: float
    """When it was first seen."""
    last: float
    kinds: dict[str, dict[str, SeenDefinition]] = field(default_factory=dict)


class DefinitionChange(Struct, frozen=True):
    """A definition is not as it was, or is new."""

    time: float
    kind: str
    """`tool`, `resource`, `template`, `prompt` or `instructions`."""
    name: str
    change: str
    """`changed` or `appeared`."""
    first_seen: float
    """Of the definition before it; of the server, if there was none."""
    last_seen: float
    digest: str
    times: int = 1


class HistoryRecord(Struct):
    """What is kept of one server."""

    views: dict[str, SeenDefinitions] = field(default_factory=dict)
    changes: list[DefinitionChange] = field(default_factory=list)


class RecordStore(Protocol):
    """Where a record outlives the process."""

    def load(self) -> HistoryRecord | None:
        """The record; None if there is none that can be used."""
        ...

    def save(self, record: HistoryRecord) -> None:
        """Keep it, if that is possible."""
        ...


class History:
    """What one server's definitions were, and which of them changed."""

    def __init__(
        self, shelf: RecordStore | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._shelf = shelf
        self._clock = clock
        self.is_exposed: Callable[[str], bool] = lambda tool: True
        """Which tools an operator is told of."""
        self._record: HistoryRecord | None = None
        self._digests: dict[bytes, str] = {}
        self._compared: dict[str, float] = {}
        self._told: list[float] = []
        self._lock = Lock()

    def is_due(self, view: str) -> bool:
        """True if the times on disk are worth writing again."""
        return self._clock() - self._compared.get(view, 0.0) > _DUE_S

    def compare(self, view: str, offer: Offer) -> list[DefinitionChange]:
        """Take in what a view offers now; the changes. Waits for the disk."""
        with self._lock:
            record = (
                (self._shelf.load() if self._shelf else None) or self._record or HistoryRecord()
            )
            now = self._clock()
            found = update_record(record, view, self._hashed(offer), now)
            self._record = record
            self._compared[view] = now
            if self._shelf is not None:
                self._shelf.save(record)
        return found

    def lines(self, server: str, changes: Sequence[DefinitionChange]) -> Iterator[str]:
        """One line for the log for each change, as long as there are not too many."""
        now = self._clock()
        self._told = [at for at in self._told if now - at < _PER_S]
        for change in filter(self._is_shown, changes):
            if len(self._told) > _MAX_LINES:
                return
            self._told.append(now)
            if len(self._told) > _MAX_LINES:
                yield f"{server}: definitions keep changing; see `portico status` for the latest"
            else:
                yield change_line(server, change_fields(change))

    def recent(self) -> list[dict[str, Any]]:
        """The newest changes first, for people and programs."""
        if self._record is None:
            self._record = (self._shelf.load() if self._shelf else None) or HistoryRecord()
        since = self._clock() - RECENT_S
        recent = [change for change in self._record.changes if change.time > since]
        shown = list(filter(self._is_shown, recent))
        return [change_fields(change) for change in reversed(shown[-MAX_RECENT:])]

    def _is_shown(self, change: DefinitionChange) -> bool:
        return change.kind != "tool" or self.is_exposed(change.name)

    def _hashed(self, offer: Offer) -> dict[str, dict[str, str]]:
        """By kind and key, the digest of each definition."""
        known, self._digests = self._digests, {}
        found: dict[str, dict[str, str]] = {}
        for kind in KINDS:
            if kind not in offer.lists:
                continue
            listed = offer.lists[kind]
            digests = found[kind] = {}
            for key, item in zip(listed.keys[:_MAX_KEYS], listed.items, strict=False):
                digest = known.get(item) or digest_of(kind, item)
                digests[short_key(key)] = self._digests[item] = digest
        said = members(offer.introduction).get("instructions", b'""')
        found[INSTRUCTIONS] = {"": fingerprint(bytes(said))}
        return found


def update_record(
    record: HistoryRecord, view: str, digests: Mapping[str, Mapping[str, str]], now: float
) -> list[DefinitionChange]:
    """Take what a view offers now into the record; the changes."""
    known = record.views.pop(view, None) or _kin(record, view)
    changes: list[DefinitionChange] = []
    if known is None:
        known = SeenDefinitions(now, now)
        is_news = False
    else:
        is_news = True
    for kind, keys in digests.items():
        # A list that was never seen before has its own baseline.
        listed_before = kind in known.kinds
        sights = known.kinds.setdefault(kind, {})
        for key, digest in keys.items():
            before = sights.pop(key, None)
            if before is not None and before.digest == digest:
                sights[key] = SeenDefinition(digest, before.first_seen, now)
                continue
            sights[key] = SeenDefinition(digest, now, now)
            if not is_news or not listed_before:
                continue
            if before is not None:
                span = (before.first_seen, before.last_seen)
                changes.append(DefinitionChange(now, _one(kind), key, "changed", *span, digest))
            elif kind == "tools":
                changes.append(
                    DefinitionChange(now, "tool", key, "appeared", known.since, known.last, digest)
                )
        for gone in list(sights)[: max(0, len(sights) - _MAX_KEYS)]:
            del sights[gone]  # those seen longest ago stand first
    known.last = now
    record.views[view] = known
    for oldest in list(record.views)[:-_MAX_VIEWS]:
        del record.views[oldest]
    _keep(record, changes)
    return changes


def _kin(record: HistoryRecord, view: str) -> SeenDefinitions | None:
    """The latest view of the same era: clients with other capabilities see the same server."""
    era = _ERA.match(view)
    near = [one for name, one in record.views.items() if era and name.startswith(era.group())]
    if not near:
        return None
    latest = max(near, key=lambda one: one.last)
    kinds = {kind: dict(sights) for kind, sights in latest.kinds.items()}
    return SeenDefinitions(latest.since, latest.last, kinds)


def _keep(record: HistoryRecord, changes: Sequence[DefinitionChange]) -> None:
    by_name = {(one.kind, one.name): one for one in record.changes}
    for change in changes:
        before = by_name.pop((change.kind, change.name), None)
        times = 1 if before is None else before.times + 1
        by_name[change.kind, change.name] = replace(change, times=times)
    record.changes = list(by_name.values())[-MAX_CHANGES:]


def digest_of(kind: str, item: bytes) -> str:
    """A definition's digest; the size and date of a resource are not part of what it is."""
    if kind == "resources" and _CHANGING.search(item):
        fields = members(item)
        fields.pop("size", None)
        notes = members(fields.pop("annotations", b""))
        notes.pop("lastModified", None)
        item = encode({**fields, "annotations": notes} if notes else fields)
    return fingerprint(item)


def short_key(key: str) -> str:
    """A key that a file may hold ten thousand of."""
    if len(key) <= _MAX_KEY:
        return key
    mark = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{key[:_MAX_KEY]}…{mark}"


def change_fields(change: DefinitionChange) -> dict[str, Any]:
    """A change as programs read it; its name is safe for a terminal and a model."""
    return {
        "time": _stamp(change.time),
        "kind": change.kind,
        "name": " ".join(sanitize_text(change.name).split())[:_MAX_KEY],
        "change": change.change,
        "first_seen": _stamp(change.first_seen),
        "last_seen": _stamp(change.last_seen),
        "times": change.times,
    }


def change_line(server: str, change: Mapping[str, Any]) -> str:
    """A change in one line."""
    what = f"{change.get('kind')} {change.get('name')}".rstrip()
    first, last = change.get("first_seen"), change.get("last_seen")
    if change.get("change") == "appeared":
        return f"{server}: {what} appeared (server first seen {first}, last seen without it {last})"
    return f"{server}: {what} changed (previous version first seen {first}, last seen {last})"


def _one(kind: str) -> str:
    return kind if kind == INSTRUCTIONS else kind.removesuffix("s")


def _stamp(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
