"""The descriptions of a function and its parameters, from its docstring."""

from collections.abc import Iterator

_SECTIONS = ("args:", "arguments:", "parameters:", "params:")


def summary(text: str) -> str:
    """Return the first paragraph as one line; it is empty before a section of parameters."""
    paragraph: list[str] = []
    for line in text.strip().splitlines():
        line = line.strip()  # noqa: PLW2901  (only the stripped line matters)
        if not line or line.lower() in _SECTIONS or line.startswith(":param"):
            break
        paragraph.append(line)
    return " ".join(paragraph)


def parameters(text: str) -> dict[str, str]:
    """Return the description of each parameter, from `Args:` or `:param name:` lines."""
    found: dict[str, str] = {}
    for name, words in (*_from_section(text.splitlines()), *_from_fields(text.splitlines())):
        found.setdefault(name.lstrip("*"), words)
    return {name: words for name, words in found.items() if words}


def _from_section(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Google style: `name (type): words`, continued on lines that are indented further."""
    starts = [i for i, line in enumerate(lines) if line.strip().lower() in _SECTIONS]
    if not starts:
        return
    margin = _indent(lines[starts[0]])
    depth = None
    name, words = "", ""
    for line in lines[starts[0] + 1 :]:
        if not line.strip():
            continue
        if _indent(line) <= margin:
            break
        depth = _indent(line) if depth is None else depth
        head, colon, rest = line.strip().partition(":")
        if _indent(line) > depth or not colon:
            words = f"{words} {line.strip()}".strip()
            continue
        if name:
            yield name, words
        name, words = head.partition("(")[0].strip(), rest.strip()
    if name:
        yield name, words


def _from_fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Sphinx style: `:param type name: words`, continued on indented lines."""
    name, words = "", ""
    for line in (*lines, ":"):
        stripped = line.strip()
        if name and stripped and not stripped.startswith(":") and _indent(line):
            words = f"{words} {stripped}"
            continue
        if name:
            yield name, words.strip()
            name = ""
        if stripped.startswith(":param "):
            head, _, words = stripped.removeprefix(":param ").partition(":")
            name = head.split()[-1] if head.split() else ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
