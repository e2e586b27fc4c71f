"""Every Python block of the docs runs, and prints what the page says it prints.

The blocks of one page share a namespace and an event loop and run in order. A block with a file's
name beside its language is saved first.
"""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import Block, blocks, pages, text_of

NOT_RUN = 2
"""Blocks marked `no-run`: they need what is not installed here, or never end."""


@pytest.mark.parametrize("page", [page for page in pages() if "```python" in text_of(page)])
async def test_the_code_of_a_page_runs(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippets"}
    for block in blocks(page):
        block.save(tmp_path)
        if block.language == "python" and block.note != "no-run":
            await _run(block, page, names)
        elif block.note == "output":
            assert capsys.readouterr().out == block.text, f"{page}:{block.line}"


def test_nearly_every_block_runs() -> None:
    marked = [
        f"{page}:{block.line}"
        for page in pages()
        for block in blocks(page)
        if block.language == "python" and block.note == "no-run"
    ]
    assert len(marked) <= NOT_RUN, marked


async def _run(block: Block, page: str, names: dict[str, Any]) -> None:
    # Empty lines first, so that a traceback shows the line of the page.
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)
    else:
        exec(code, names)
