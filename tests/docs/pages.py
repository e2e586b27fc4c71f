"""The documentation as data: its pages, and the blocks of code in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One block of code: what it is in, and what stands beside the name of its language."""

    line: int
    language: str
    note: str
    text: str

    @property
    def file(self) -> str:
        """The name under which the page's reader saves it, if it has one."""
        return self.note if "." in self.note else ""

    def save(self, folder: Path) -> None:
        """Save it there, if the page's reader would."""
        if self.file:
            (folder / self.file).write_text(self.text)


def pages() -> list[str]:
    """Every page, by its path from the root."""
    front = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
    return [*front, *sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md"))]


def text_of(page: str) -> str:
    """A page as it is written."""
    return (ROOT / page).read_text()


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    text = text_of(page)
    found = []
    for match in _FENCE.finditer(text):
        language, _, note = match["info"].strip().partition(" ")
        line = text.count("\n", 0, match.start("text")) + 1
        found.append(Block(line, language, note.strip(), match["text"]))
    return found


def prose(page: str) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", text_of(page))


def headings(page: str) -> list[str]:
    """The titles of a page's sections."""
    return re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)


def section(page: str, heading: str) -> str:
    """What stands under a heading of the second level."""
    _, _, rest = text_of(page).partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]
