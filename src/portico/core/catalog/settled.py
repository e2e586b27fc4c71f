"""An offer that was fetched again, with the order and bytes of the known one where nothing really
changed.

Models read the lists in every conversation, and their providers charge far less for text that is,
byte for byte, what they have read before. A server that lists the same in another order, or writes
the keys of its definitions in another order, has changed nothing.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from portico.core.catalog.fingerprint import fingerprint
from portico.core.model.offer import Listed, Offer


def settled(offer: Offer, *known: Offer) -> Offer:
    """Return an offer with the order and bytes of the known ones, the first of them first, where
    both mean the same.

    `settled(now, before).same(before)` is true if nothing really changed.
    """
    lists = {
        kind: _settled_list(listed, [one.lists[kind] for one in known if kind in one.lists])
        for kind, listed in offer.lists.items()
    }
    introductions = [one.introduction for one in known]
    return replace(offer, lists=lists, introduction=_stored(offer.introduction, introductions))


def in_order_of_keys(offer: Offer) -> Offer:
    """Return an offer with each list in the order of its names or URIs."""
    return replace(offer, lists={kind: _sorted(listed) for kind, listed in offer.lists.items()})


def _settled_list(now: Listed, known: Sequence[Listed]) -> Listed:
    if not known or now == known[0]:
        return known[0] if known else now
    stored = [dict(zip(one.keys, one.items, strict=True)) for one in known]
    found = {
        key: _stored(raw, [items[key] for items in stored if key in items])
        for key, raw in zip(now.keys, now.items, strict=True)
    }
    before = known[0]
    keys = _order(found, stored[0])
    return replace(
        now,
        items=tuple([found[key] for key in keys]),
        keys=keys,
        more=_stored(now.more, [before.more]),
        # Another size of pages would only move the cursors.
        page_size=before.page_size if keys == before.keys else now.page_size,
    )


def _order(now: Mapping[str, bytes], before: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the keys in the known order, and the new ones at the place that the server gives them;
    at the end, if it gives the others another order too."""
    kept = [key for key in before if key in now]
    if kept == [key for key in now if key in before]:
        return tuple(now)
    return (*kept, *(key for key in now if key not in before))


def _stored(raw: bytes, known: Sequence[bytes]) -> bytes:
    """Return the first known bytes that mean the same, or else these."""
    if raw in known[:1] or not known:
        return known[0] if known else raw
    meaning = fingerprint(raw)
    return next((one for one in known if fingerprint(one) == meaning), raw)


def _sorted(listed: Listed) -> Listed:
    pairs = sorted(zip(listed.keys, listed.items, strict=True))
    keys = tuple([key for key, _ in pairs])
    if keys == listed.keys:
        return listed
    return replace(listed, keys=keys, items=tuple([raw for _, raw in pairs]))
