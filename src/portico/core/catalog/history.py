"""The history of one server's definitions: a digest of each, and the changes since the first.

The first offer of a server is its baseline and reports nothing. After that a definition with
another digest *changed*, and a tool with a new name *appeared*. Removed definitions are kept, so
that a definition that returns with another meaning is still a change.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from portico.core.catalog.fingerprint import fingerprint
from portico.core.catalog.sanitize import sanitize_text
from portico.core.model.offer import KINDS, Offer
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members

MAX_CHANGES = 100
"""The newest are kept, one for each definition."""
MAX_RECENT = 10
RECENT_S = 30 * 86_400
"""The number and age of the changes that `status` shows for each server."""
_MAX_KEYS = 20_000
_MAX_VIEWS = 8
_MAX_KEY_LENGTH = 200
_MAX_LINES = 60
_LOG_PERIOD_S = 3600.0
"""The log gets at most `_MAX_LINES` lines from a server in this period."""
_SAVE_PERIOD_S = 3600.0
"""How often `last_seen` is saved although nothing has changed."""
INSTRUCTIONS = "instructions"
_VOLATILE = re.compile(rb'"(?:size|lastModified)"')
_ERA = re.compile("[a-z]*")


class SeenDefinition(Struct, array_like=True):
    """One definition as it was last seen."""

    digest: str
    first_seen: float
    last_seen: float


class SeenDefinitions(Struct):
    """All definitions that one view of a server has contained."""

    since: float
    """The time of the first offer."""
    last: float
    kinds: dict[str, dict[str, SeenDefinition]] = field(default_factory=dict)


class DefinitionChange(Struct, frozen=True):
    """A definition that changed or is new."""

    time: float
    kind: str
    """`tool`, `resource`, `template`, `prompt` or `instructions`."""
    name: str
    change: str
    """`changed` or `appeared`."""
    first_seen: float
    """The time of the previous definition; of the server, if there was none."""
    last_seen: float
    digest: str
    times: int = 1


class HistoryRecord(Struct):
    """The stored history of one server."""

    views: dict[str, SeenDefinitions] = field(default_factory=dict)
    changes: list[DefinitionChange] = field(default_factory=list)


class RecordStore(Protocol):
    """The storage of a record beyond the process."""

    def load(self) -> HistoryRecord | None:
        """Return the record, or None if there is no usable one."""
        ...

    def save(self, record: HistoryRecord) -> None:
        """Save the record if possible."""
        ...


class History:
    """The definitions of one server over time, and their changes."""

    def __init__(
        self, store: RecordStore | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._clock = clock
        self.is_exposed: Callable[[str], bool] = lambda tool: True
        """Whether changes of this tool are reported."""
        self._record: HistoryRecord | None = None
        self._digests: dict[bytes, str] = {}
        self._compared: dict[str, float] = {}
        self._logged: list[float] = []
        self._lock = Lock()

    def is_due(self, view: str) -> bool:
        """True if it is time to save `last_seen` again."""
        return self._clock() - self._compared.get(view, 0.0) > _SAVE_PERIOD_S

    def compare(self, view: str, offer: Offer) -> list[DefinitionChange]:
        """Update the history with a view's offer and return the changes. Blocks on the disk."""
        with self._lock:
            record = (
                (self._store.load() if self._store else None) or self._record or HistoryRecord()
            )
            now = self._clock()
            found = update_record(record, view, self._digests_of(offer), now)
            self._record = record
            self._compared[view] = now
            if self._store is not None:
                self._store.save(record)
        return found

    def lines(self, server: str, changes: Sequence[DefinitionChange]) -> Iterator[str]:
        """Yield a log line for each change, up to a limit per hour."""
        now = self._clock()
        self._logged = [at for at in self._logged if now - at < _LOG_PERIOD_S]
        for change in filter(self._is_reported, changes):
            if len(self._logged) > _MAX_LINES:
                return
            self._logged.append(now)
            if len(self._logged) > _MAX_LINES:
                yield f"{server}: definitions keep changing; see `portico status` for the latest"
            else:
                yield change_line(server, change_fields(change))

    def recent(self) -> list[dict[str, Any]]:
        """Return the recent changes, newest first."""
        if self._record is None:
            self._record = (self._store.load() if self._store else None) or HistoryRecord()
        since = self._clock() - RECENT_S
        recent = [change for change in self._record.changes if change.time > since]
        shown = list(filter(self._is_reported, recent))
        return [change_fields(change) for change in reversed(shown[-MAX_RECENT:])]

    def _is_reported(self, change: DefinitionChange) -> bool:
        return change.kind != "tool" or self.is_exposed(change.name)

    def _digests_of(self, offer: Offer) -> dict[str, dict[str, str]]:
        """Return the digest of each definition, by kind and key."""
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
        instructions = members(offer.introduction).get("instructions", b'""')
        found[INSTRUCTIONS] = {"": fingerprint(bytes(instructions))}
        return found


def update_record(
    record: HistoryRecord, view: str, digests: Mapping[str, Mapping[str, str]], now: float
) -> list[DefinitionChange]:
    """Update the record with the digests of a view and return the changes."""
    known = record.views.pop(view, None) or _latest_of_era(record, view)
    changes: list[DefinitionChange] = []
    has_baseline = known is not None
    if known is None:
        known = SeenDefinitions(now, now)
    for kind, keys in digests.items():
        # A list that is new has its own baseline.
        listed_before = kind in known.kinds
        definitions = known.kinds.setdefault(kind, {})
        for key, digest in keys.items():
            before = definitions.pop(key, None)
            if before is not None and before.digest == digest:
                definitions[key] = SeenDefinition(digest, before.first_seen, now)
                continue
            definitions[key] = SeenDefinition(digest, now, now)
            if not has_baseline or not listed_before:
                continue
            if before is not None:
                span = (before.first_seen, before.last_seen)
                changes.append(
                    DefinitionChange(now, _singular(kind), key, "changed", *span, digest)
                )
            elif kind == "tools":
                changes.append(
                    DefinitionChange(now, "tool", key, "appeared", known.since, known.last, digest)
                )
        for oldest in list(definitions)[: max(0, len(definitions) - _MAX_KEYS)]:
            del definitions[oldest]  # the order is from the least to the most recently seen
    known.last = now
    record.views[view] = known
    for oldest in list(record.views)[:-_MAX_VIEWS]:
        del record.views[oldest]
    _add_changes(record, changes)
    return changes


def _latest_of_era(record: HistoryRecord, view: str) -> SeenDefinitions | None:
    """Return a copy of the latest view of the same era: it is a baseline for a new view."""
    era = _ERA.match(view)
    same_era = [one for name, one in record.views.items() if era and name.startswith(era.group())]
    if not same_era:
        return None
    latest = max(same_era, key=lambda one: one.last)
    kinds = {kind: dict(definitions) for kind, definitions in latest.kinds.items()}
    return SeenDefinitions(latest.since, latest.last, kinds)


def _add_changes(record: HistoryRecord, changes: Sequence[DefinitionChange]) -> None:
    by_name = {(one.kind, one.name): one for one in record.changes}
    for change in changes:
        before = by_name.pop((change.kind, change.name), None)
        times = 1 if before is None else before.times + 1
        by_name[change.kind, change.name] = replace(change, times=times)
    record.changes = list(by_name.values())[-MAX_CHANGES:]


def digest_of(kind: str, item: bytes) -> str:
    """Return a definition's digest, which ignores the size and date of a resource."""
    if kind == "resources" and _VOLATILE.search(item):
        fields = members(item)
        fields.pop("size", None)
        notes = members(fields.pop("annotations", b""))
        notes.pop("lastModified", None)
        item = encode({**fields, "annotations": notes} if notes else fields)
    return fingerprint(item)


def short_key(key: str) -> str:
    """Return a key of limited length, so that files with thousands of keys stay small."""
    if len(key) <= _MAX_KEY_LENGTH:
        return key
    mark = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{key[:_MAX_KEY_LENGTH]}…{mark}"


def change_fields(change: DefinitionChange) -> dict[str, Any]:
    """Return a change as JSON fields, with a name that is safe for terminals and models."""
    return {
        "time": _timestamp(change.time),
        "kind": change.kind,
        "name": " ".join(sanitize_text(change.name).split())[:_MAX_KEY_LENGTH],
        "change": change.change,
        "first_seen": _timestamp(change.first_seen),
        "last_seen": _timestamp(change.last_seen),
        "times": change.times,
    }


def change_line(server: str, change: Mapping[str, Any]) -> str:
    """Return a change as one line of text."""
    what = f"{change.get('kind')} {change.get('name')}".rstrip()
    first, last = change.get("first_seen"), change.get("last_seen")
    if change.get("change") == "appeared":
        return f"{server}: {what} appeared (server first seen {first}, last seen without it {last})"
    return f"{server}: {what} changed (previous version first seen {first}, last seen {last})"


def _singular(kind: str) -> str:
    return kind if kind == INSTRUCTIONS else kind.removesuffix("s")


def _timestamp(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
