"""Names similar to a misspelled one."""

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nlargest

_MAX_COMPARED = 20
"""How many names are compared letter by letter, which is slow."""
_MIN_RATIO = 0.5
"""The lowest ratio that counts as similar."""


class SimilarNames:
    """An index of names by their pairs of letters."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = [*dict.fromkeys(names)]
        self._holding: dict[str, list[int]] = {}
        self._sizes: list[int] = []
        for place, name in enumerate(self._names):
            pairs = _pairs(name)
            self._sizes.append(len(pairs))
            for pair in pairs:
                self._holding.setdefault(pair, []).append(place)

    def similar(self, name: str, limit: int = 3) -> list[str]:
        """Return the most similar names, best first; empty if none is similar."""
        name = name[:200]
        pairs = _pairs(name)
        shared: Counter[int] = Counter()
        for pair in pairs:
            shared.update(self._holding.get(pair, ()))
        sizes = self._sizes
        likely = nlargest(
            _MAX_COMPARED, shared, key=lambda at: 2 * shared[at] / (sizes[at] + len(pairs))
        )
        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(_plain(name))
        found: list[tuple[float, str]] = []
        for at in likely:
            matcher.set_seq1(_plain(self._names[at])[:200])
            if (ratio := matcher.ratio()) >= _MIN_RATIO:
                found.append((-ratio, self._names[at]))
        return [one for _, one in sorted(found)[: max(limit, 0)]]


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


def _pairs(name: str) -> set[str]:
    plain = _plain(name)
    return {plain[at : at + 2] for at in range(max(1, len(plain) - 1))}
