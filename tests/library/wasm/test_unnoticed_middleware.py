"""Sandboxed middleware that does nothing is not noticed: in front of a Python component, a
WebAssembly component and a real server, every answer is the one without it, byte for byte."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.library.components.test_faithful import Run
from tests.library.wasm import building, hosting
from tests.library.wasm.test_middleware_chain import ECHO
from tests.rigs.running import everything, listening
from tests.serve.gateway import Gateway, written
from tests.support.pairs import pairs
from tests.wrap.faults import portico_command
from tests.wrap.talk import Client, Pipes, web

pytestmark = [
    *(pytest.mark.faithful, pytest.mark.slow, pytest.mark.soak),
    pytest.mark.xdist_group("unnoticed-wasm"),
]
KINDS = ("own", "typed", "early")
WAYS = pairs(KINDS, ("stdio", "http", "serve"), ("legacy", "modern"))
REQUESTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tools/list", {}),
    ("resources/list", {}),
    ("prompts/list", {}),
    ("tools/call", {"name": "CALC echo", "arguments": {"text": "hi"}}),
    ("tools/call", {"name": "CALC echo", "arguments": {"text": 5}}),
    ("tools/call", {"name": "OWN add", "arguments": {"a": 2, "b": 3}}),
    ("tools/call", {"name": "OWN fail", "arguments": {}}),
    ("tools/call", {"name": "REAL test_simple_text", "arguments": {}}),
    ("tools/call", {"name": "REAL test_image_content", "arguments": {}}),
    ("tools/call", {"name": "REAL test_error_handling", "arguments": {}}),
    ("tools/call", {"name": "nobody", "arguments": {}}),
    ("resources/read", {"uri": "note://1"}),
    ("resources/read", {"uri": "nothing://1"}),
    ("prompts/get", {"name": "nobody"}),
)


def noop(kind: str) -> Path:
    if kind == "typed":
        return building.javascript("typed_noop.js", building.WIT / "v20251125", "middleware")
    if kind == "early":
        return building.javascript("early.js", building.WIT / "beta", "middleware")
    return building.javascript("noop.js", building.WIT / "own", "noop")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The components, the middleware, and the URL of the real server."""
    made = tmp_path_factory.mktemp("unnoticed")
    (made / "calc.py").write_text(ECHO)
    shutil.copy(hosting.own_guest(), made / "own.wasm")
    for kind in KINDS:
        shutil.copy(noop(kind), made / f"{kind}-noop.wasm")
    hosting.home(made)
    with listening(everything("--http", "0")) as url:
        (made / "url").write_text(url)
        yield made


def client_of(stack: ExitStack, folder: Path, over: str, modern: bool, links: list[str]) -> Client:
    home = folder / "home"
    real = (folder / "url").read_text()
    if over == "serve":
        config = written(
            folder / "portico.toml",
            {"real": {"url": real}},
            gateway={"expose": "all", "links": links},
            **{"components.calc": {"path": "calc.py"}, "components.own": {"path": "own.wasm"}},
        )
        gateway = stack.enter_context(Gateway(home, config))
        return stack.enter_context(web(gateway.port, modern=modern))
    words = [*links, "calc.py", "own.wasm", f"real={real}"]
    files = [str(folder / word) if (folder / word).exists() else word for word in words]
    if over == "http":
        return stack.enter_context(web(stack.enter_context(Run(home, *files)).port, modern=modern))
    argv = portico_command(home, "run", *files)
    client = stack.enter_context(Pipes(home, words=argv, modern=modern))
    if not modern:
        client.hello()
    return client


def answers(folder: Path, over: str, era: str, *links: str) -> Iterator[tuple[str, Any]]:
    with ExitStack() as stack:
        client = client_of(stack, folder, over, era == "modern", list(links))
        for method, params in REQUESTS:
            named = dict(params)
            if "name" in params:
                owner, _, tool = params["name"].rpartition(" ")
                prefix = f"{owner.lower()}__" if owner and over == "serve" else ""
                named["name"] = prefix + tool
            raw = client.answer(client.request(method, named))
            yield f"{method} {params}", re.sub(rb'"id":\s*[^,}]+', b"", raw, count=1)


@pytest.fixture(scope="module")
def without(folder: Path) -> Callable[[str, str], dict[str, Any]]:
    """The answers without middleware: they are the same for each kind of it."""
    return cache(lambda over, era: dict(answers(folder, over, era)))


@pytest.mark.parametrize(("kind", "over", "era"), WAYS)
def test_every_answer_is_the_one_without_it(
    folder: Path, without: Callable[[str, str], dict[str, Any]], kind: str, over: str, era: str
) -> None:
    expected_answers = without(over, era)
    assert dict(answers(folder, over, era, f"{kind}-noop.wasm")) == expected_answers
    said = b"".join(expected_answers.values())
    expected = [b"simple text", b'"sum":5', b"it failed", b"unknown tool"]
    if over != "serve":  # there, URIs of several servers are qualified
        expected.append(b'"hello"')
    assert [text for text in expected if text not in said] == []
