"""Several offers as one, in order; of two owners of a name the first is shown."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from portico.model.offer import Item, Offer

KINDS = ("tools", "resources", "templates", "prompts")


class Clash(Struct, frozen=True):
    """Two owners of one name."""

    kind: str
    key: str
    owner: str
    newcomer: str

    def __str__(self) -> str:
        return (
            f"{self.kind.removesuffix('s')} {self.key!r} is offered by both "
            f"{self.owner!r} and {self.newcomer!r}"
        )


def merge(offers: Sequence[tuple[str, Offer]]) -> tuple[Offer, list[Clash]]:
    """One offer of all, first come first shown, and every name that had a second owner."""
    clashes: list[Clash] = []
    merged = {kind: _merge_kind(kind, offers, clashes) for kind in KINDS}
    return (
        Offer(
            **merged,
            completions=any(offer.completions for _, offer in offers),
            subscriptions=any(offer.subscriptions for _, offer in offers),
            capabilities=frozenset().union(*(offer.capabilities for _, offer in offers)),
        ),
        clashes,
    )


def _merge_kind(
    kind: str, offers: Iterable[tuple[str, Offer]], clashes: list[Clash]
) -> tuple[Item, ...]:
    owners: dict[str, str] = {}
    items: list[Item] = []
    for owner, offer in offers:
        for item in getattr(offer, kind):
            if item.key in owners:
                clashes.append(Clash(kind, item.key, owners[item.key], owner))
            else:
                owners[item.key] = owner
                items.append(item)
    return tuple(items)
