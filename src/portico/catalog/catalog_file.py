"""The file that keeps what is known of one upstream: a line that vouches for it, then JSON."""

import msgspec
from msgspec import Raw, Struct

from portico.model.offer import KINDS, Listed, Offer
from portico.model.version import BY_TEXT
from portico.state.checksummed import PLAIN, Damaged, Newer, packed, unpacked

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


class CatalogFile(Struct):
    """All of it but the first line."""

    version: str
    taken: float
    introduction: Raw
    lists: dict[str, _CatalogList]


_document = msgspec.json.Decoder(CatalogFile).decode


def parse_catalog(data: bytes) -> CatalogFile:
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


def offer_of(document: CatalogFile) -> Offer:
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


def encode_catalog(offer: Offer) -> bytes:
    """The whole file; ValueError or Damaged if the same offer would not come back from it."""
    document = _document_of(offer)
    rest = msgspec.json.encode(document)
    data = packed("catalog", FORMAT, rest)
    del rest  # as large as the file, and so is what is made next
    if parse_catalog(data) != document:
        raise ValueError("what the upstream sent is not plain JSON")
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
    return CatalogFile(offer.version.text, offer.taken, Raw(offer.introduction), lists)
