"""The file that keeps what is known of one upstream: a line that vouches for it, then JSON."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.model.digest import blake2b
from portico.model.offer import KINDS, Listed, Offer
from portico.model.version import BY_TEXT
from portico.state.checksummed import PLAIN, Damaged, Newer, packed, unpacked

FORMAT = 2
BAD_JSON = (msgspec.MsgspecError, ValueError, RecursionError)


class Seen(Struct, frozen=True):
    """Since when a definition is known as it is now, in seconds since the epoch."""

    digest: str
    first_seen: float
    last_seen: float


class _Entry(Struct, gc=False):
    key: str
    digest: str
    first_seen: float
    last_seen: float
    definition: Raw


class _List(Struct):
    entries: list[_Entry]
    more: Raw
    page_size: int
    omitted: int = 0


class Document(Struct):
    """All of it but the first line."""

    version: str
    taken: float
    introduction: Raw
    lists: dict[str, _List]


_document = msgspec.json.Decoder(Document).decode


def opened(data: bytes) -> Document:
    """The document in these bytes; raises Damaged or Newer."""
    rest = unpacked(data, "catalog", FORMAT, PLAIN)
    try:
        document = _document(rest)
    except BAD_JSON as error:
        raise Damaged(f"it has another shape: {error}") from None
    if document.version not in BY_TEXT:
        raise Newer(f"it has version {document.version!r:.40}, of a newer Portico")
    for kind, listed in document.lists.items():
        if kind not in KINDS:
            raise Damaged(f"there is no kind {kind!r:.40}")
        if len({entry.key for entry in listed.entries}) != len(listed.entries):
            raise Damaged(f"two {kind} have the same key")
    return document


def offer_in(document: Document) -> Offer:
    """What it says of the upstream."""
    return Offer(
        version=BY_TEXT[document.version],
        introduction=bytes(document.introduction),
        lists={
            kind: Listed(
                items=tuple([bytes(entry.definition) for entry in listed.entries]),
                keys=tuple([entry.key for entry in listed.entries]),
                more=bytes(listed.more),
                page_size=listed.page_size,
                omitted=listed.omitted,
            )
            for kind, listed in document.lists.items()
        },
        taken=document.taken,
    )


def renewed(offer: Offer, older: Document | None, now: float) -> Document:
    """The document of this offer, in which what was there before is known as long as then."""
    lists = {
        kind: _List(
            _entries(listed, older.lists.get(kind) if older else None, now),
            Raw(listed.more),
            listed.page_size,
            listed.omitted,
        )
        for kind, listed in offer.lists.items()
    }
    return Document(offer.version.text, offer.taken, Raw(offer.introduction), lists)


def written(document: Document, offer: Offer) -> bytes:
    """The whole file; ValueError or Damaged if the same offer would not come back from it."""
    rest = msgspec.json.encode(document)
    data = packed("catalog", FORMAT, rest)
    del rest  # as large as the file, and so is what is made next
    if not _says(opened(data), offer):
        raise ValueError("what the upstream sent is no plain JSON")
    return data


def _says(document: Document, offer: Offer) -> bool:
    """True if `offer_in` would make the same of it, but without its copies of all definitions."""
    said = (document.version, document.taken, document.introduction, document.lists.keys())
    if said != (offer.version.text, offer.taken, Raw(offer.introduction), offer.lists.keys()):
        return False
    return all(_lists(document.lists[kind], listed) for kind, listed in offer.lists.items())


def _lists(kept: _List, listed: Listed) -> bool:
    said = (kept.more, kept.page_size, kept.omitted, len(kept.entries))
    if said != (Raw(listed.more), listed.page_size, listed.omitted, len(listed.keys)):
        return False
    pairs = zip(listed.keys, listed.items, strict=True)
    return all(
        entry.key == key and entry.definition == Raw(item)
        for entry, (key, item) in zip(kept.entries, pairs, strict=True)
    )


def _entries(listed: Listed, older: _List | None, now: float) -> list[_Entry]:
    known = {entry.key: entry for entry in older.entries} if older else {}
    entries: list[_Entry] = []
    for key, item in zip(listed.keys, listed.items, strict=True):
        old = known.get(key)
        same = old is not None and bytes(old.definition) == item
        digest = old.digest if old and same else fingerprint(item)
        first = old.first_seen if old and old.digest == digest else now
        entries.append(_Entry(key, digest, first, now, Raw(item)))
    return entries


def fingerprint(definition: bytes) -> str:
    """A digest that stays when only spaces, escapes or the order of keys change."""
    import json

    try:
        value = json.loads(
            definition.decode(),
            object_pairs_hook=_object,
            parse_float=_as_written,
            parse_int=_as_written,
            parse_constant=_refuse,
        )
        canonical = msgspec.json.encode(value, order="sorted")
    except BAD_JSON:
        # Readers may differ on what it says, so its very bytes count.
        return blake2b(definition, digest_size=16, person=b"as written").hexdigest()
    return blake2b(canonical, digest_size=16).hexdigest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value


def _as_written(number: str) -> Raw:
    """Numbers keep their text: no float or integer type holds them all."""
    return Raw(number.encode())


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
