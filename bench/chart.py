"""Bars as SVG: some panels, two side by side, each with its own scale from zero."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

OURS = "Portico"
WIDTH, GAP, MARGIN = 400, 32, 24
LABEL, VALUE = 118, 56
HEAD, BAR, STEP = 52, 16, 24
_STYLE = (
    "text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}"
    ".title{font-weight:600;font-size:14px}.unit,.name{fill:#59636e}"
    ".bar{fill:#afb8c1}.ours{fill:#1a7f37}.name.ours,.value.ours{font-weight:600}"
)


@dataclass(frozen=True)
class Panel:
    """One measure: a bar for each contender, in order."""

    title: str
    unit: str
    bars: Sequence[tuple[str, float]]

    @property
    def height(self) -> int:
        """How much room it takes, with the space below it."""
        return HEAD + STEP * len(self.bars) + 12


def svg(panels: Sequence[Panel]) -> str:
    """The whole picture."""
    rows = [panels[start : start + 2] for start in range(0, len(panels), 2)]
    parts: list[str] = []
    top = MARGIN
    for row in rows:
        for place, panel in enumerate(row):
            parts += _drawn(panel, MARGIN + place * (WIDTH + GAP), top)
        top += max(panel.height for panel in row)
    width = 2 * WIDTH + GAP + 2 * MARGIN
    label = "Portico beside its peers; shorter bars are better"
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" '
        f'width="{width}" height="{top}" role="img" aria-label="{label}">'
    )
    sheet = f'<rect width="{width}" height="{top}" rx="8" fill="#fff" stroke="#d1d9e0"/>'
    return "\n".join((opening, f"<style>{_STYLE}</style>", sheet, *parts, "</svg>\n"))


def _drawn(panel: Panel, left: int, top: int) -> list[str]:
    longest = max(figure for _, figure in panel.bars) or 1
    room = WIDTH - LABEL - VALUE
    parts = [
        _text("title", left, top + 12, panel.title),
        _text("unit", left, top + 31, f"{panel.unit}, shorter is better"),
    ]
    for place, (name, figure) in enumerate(panel.bars):
        middle = top + HEAD + place * STEP + 12
        kind = " ours" if name == OURS else ""
        length = max(1.0, room * figure / longest)
        parts += [
            _text(f"name{kind}", left, middle, name),
            f'<rect class="bar{kind}" x="{left + LABEL}" y="{middle - 12}" '
            f'width="{length:.1f}" height="{BAR}" rx="2"/>',
            _text(f"value{kind}", left + LABEL + length + 6, middle, f"{figure:,.0f}"),
        ]
    return parts


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(text)}</text>'
