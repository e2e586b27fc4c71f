"""Words and meaning as one score."""

from collections.abc import Mapping, Sequence

CALM = 20.0
"""Added to the best score by words before dividing: where that is low, words should say little."""


def fuse(words: Mapping[int, float], cosines: Sequence[float]) -> dict[int, float]:
    """The scores by words, brought below 1, plus the cosines; ranks would forget how sure."""
    scale = max(words.values(), default=0.0) + CALM
    score = words.get
    return {place: score(place, 0.0) / scale + cosine for place, cosine in enumerate(cosines)}
