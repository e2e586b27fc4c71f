"""Sandboxed middleware that does nothing is not noticed: in front of a Python component, a
WebAssembly component and a real server, every answer is the one without it, byte for byte."""

import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.library.components.test_faithful import Run
from tests.library.wasm import building, hosting
from tests.library.wasm.test_middleware_chain import ECHO
from tests.rigs.running import everything
from tests.serve.gateway import Gateway, command, written
from tests.wrap.faults import portico_command
from tests.wrap.talk import Client, Pipes, web

pytestmark = [pytest.mark.faithful, pytest.mark.slow, pytest.mark.xdist_group("unnoticed-wasm")]
WAYS = [(over, era) for over in ("stdio", "http", "serve") for era in ("legacy", "modern")]
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


@pytest.fixture(scope="module", params=["own", "typed", "early"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("unnoticed")
    (made / "calc.py").write_text(ECHO)
    shutil.copy(hosting.own_guest(), made / "own.wasm")
    shutil.copy(noop(request.param), made / "noop.wasm")
    hosting.home(made)
    return made


def client_of(stack: ExitStack, folder: Path, over: str, modern: bool, links: list[str]) -> Client:
    home = folder / "home"
    real = everything("--stdio")
    if over == "serve":
        config = written(
            folder / "portico.toml",
            {"real": command(real)},
            gateway={"expose": "all", "links": links},
            **{"components.calc": {"path": "calc.py"}, "components.own": {"path": "own.wasm"}},
        )
        gateway = stack.enter_context(Gateway(home, config))
        return stack.enter_context(web(gateway.port, modern=modern))
    words = [*links, "calc.py", "own.wasm", f"real={shlex.join(real)}"]
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


@pytest.mark.parametrize(("over", "era"), WAYS)
def test_every_answer_is_the_one_without_it(folder: Path, over: str, era: str) -> None:
    without = dict(answers(folder, over, era))
    assert dict(answers(folder, over, era, "noop.wasm")) == without
    said = b"".join(without.values())
    expected = [b"simple text", b'"sum":5', b"it failed", b"unknown tool"]
    if over != "serve":  # there, URIs of several servers are qualified
        expected.append(b'"hello"')
    assert [text for text in expected if text not in said] == []
