"""The catalog file of one upstream: a line with a checksum, then JSON."""

import msgspec
from msgspec import Raw, Struct

from portico.core.model.offer import KINDS, Listed, Offer
from portico.core.model.version import BY_TEXT
from portico.core.state.checksummed import PLAIN, Damaged, Newer, pack, unpack

FORMAT = 2
BAD_JSON = (msgspec.MsgspecError, ValueError, RecursionError)


class _CatalogEntry(Struct, gc=False):
    key: str
    definition: Raw


class _CatalogList(Struct):
    entries: list[_CatalogEntry]
    more: Raw
    page_size: int
    omitted: int = 0


class CatalogFile(Struct, omit_defaults=True):
    """The JSON of the file."""

    version: str
    taken: float
    introduction: Raw
    lists: dict[str, _CatalogList]
    asks: list[str] = []
    """An older Portico ignores it."""


_decode = msgspec.json.Decoder(CatalogFile).decode


def parse_catalog(data: bytes) -> CatalogFile:
    """Decode a catalog file, or raise Damaged or Newer."""
    rest = unpack(data, "catalog", FORMAT, PLAIN)
    try:
        document = _decode(rest)
    except BAD_JSON as error:
        raise Damaged(f"unexpected structure: {error}") from None
    if document.version not in BY_TEXT:
        raise Newer(f"protocol version {document.version!r:.40} is from a newer Portico")
    for kind, listed in document.lists.items():
        if kind not in KINDS:
            raise Damaged(f"unknown kind {kind!r:.40}")
        if len({entry.key for entry in listed.entries}) != len(listed.entries):
            raise Damaged(f"two {kind} have the same key")
    return document


def offer_of(document: CatalogFile) -> Offer:
    """Return the offer in a catalog file."""
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
        asks=frozenset(document.asks),
    )


def encode_catalog(offer: Offer) -> bytes:
    """Encode an offer; raise ValueError or Damaged if it would not decode to the same offer."""
    document = _document_of(offer)
    rest = msgspec.json.encode(document)
    data = pack("catalog", FORMAT, rest)
    del rest  # it is as large as the file, and so is the document decoded next
    if parse_catalog(data) != document:
        raise ValueError("the upstream's catalog is not plain JSON")
    return data


def _document_of(offer: Offer) -> CatalogFile:
    lists = {
        kind: _CatalogList(
            [
                _CatalogEntry(key, Raw(item))
                for key, item in zip(listed.keys, listed.items, strict=True)
            ],
            Raw(listed.more),
            listed.page_size,
            listed.omitted,
        )
        for kind, listed in offer.lists.items()
    }
    asks = sorted(offer.asks)
    return CatalogFile(offer.version.text, offer.taken, Raw(offer.introduction), lists, asks)
