"""Fusion of lexical and vector scores."""

from collections.abc import Mapping, Sequence

DAMPING = 20.0
"""Added to the best lexical score before dividing, so that low scores have little weight."""


def fuse(words: Mapping[int, float], cosines: Sequence[float]) -> dict[int, float]:
    """Add the lexical scores, scaled below 1, and the cosines; ranks would lose confidence."""
    scale = max(words.values(), default=0.0) + DAMPING
    score = words.get
    return {place: score(place, 0.0) / scale + cosine for place, cosine in enumerate(cosines)}
