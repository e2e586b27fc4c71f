"""The rules that oras does not keep, and for which Portico has its own client (decision 75)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.library.distribution.manifest import digest_of
from tests.library.distribution.own_registry import (
    Answer,
    OwnRegistry,
    Seen,
    layer_of,
    own_registry,
)
from tests.library.distribution.rigs import PASSWORD, USER, component
from tests.library.distribution.test_hostile_registry import BASIC
from tests.library.distribution.with_oras import oras_tries

pytestmark = pytest.mark.slow
LAYER = layer_of(200_000)


@pytest.fixture
def registry() -> Iterator[OwnRegistry]:
    with own_registry() as made:
        yield made


def test_oras_keeps_a_layer_of_another_digest_and_size(
    registry: OwnRegistry, tmp_path: Path
) -> None:
    registry.add("calc", "1", LAYER, size=10, title="calc.wasm")
    wrong = registry.blobs[digest_of(LAYER)] = b"x" * len(LAYER)
    file = tmp_path / "calc.wasm"
    assert oras_tries("pull", f"{registry.host}/calc:1", file)
    assert file.read_bytes() == wrong


def test_oras_leaves_a_part_at_the_final_path_and_does_not_resume(
    registry: OwnRegistry, tmp_path: Path
) -> None:
    registry.add("calc", "1", LAYER, title="calc.wasm")
    registry.hook = lambda seen: Answer(200, LAYER, cut=150_000) if "/blobs/" in seen.path else None
    file = tmp_path / "calc.wasm"
    assert not oras_tries("pull", f"{registry.host}/calc:1", file)
    assert 0 < file.stat().st_size < len(LAYER)
    registry.hook = lambda _: None
    registry.seen.clear()
    assert oras_tries("pull", f"{registry.host}/calc:1", file)
    assert all("range" not in one.headers for one in registry.requests("GET", "/blobs/"))


def test_oras_gives_the_password_to_any_token_service(
    registry: OwnRegistry, tmp_path: Path
) -> None:
    registry.add("calc", "1", LAYER, title="calc.wasm")
    with own_registry() as other:
        other.hook = lambda _: Answer(200, b'{"token": "t"}')
        realm = other.url.replace("127.0.0.1", "localhost")

        def guard(seen: Seen) -> Answer | None:
            if seen.headers.get("authorization") == "Bearer t":
                return None
            about = f'Bearer realm="{realm}/token",service="s",scope="repository:calc:pull"'
            return Answer(401, headers={"WWW-Authenticate": about})

        registry.hook = guard
        file = tmp_path / "calc.wasm"
        assert oras_tries("pull", f"{registry.host}/calc:1", file, (USER, PASSWORD))
        assert f"Basic {BASIC}" in {one.headers.get("authorization") for one in other.seen}


def test_oras_sends_every_chunk_of_a_broken_push_again(
    registry: OwnRegistry, tmp_path: Path
) -> None:
    file = component(tmp_path / "calc.wasm", 3_500_000)
    target = f"{registry.host}/calc:1"
    stopped = iter([None, Answer(400), Answer(400), Answer(400)])
    registry.hook = lambda seen: next(stopped, None) if seen.method == "PATCH" else None
    assert not oras_tries("push", target, file)
    registry.hook = lambda _: None
    registry.seen.clear()
    oras_tries("push", target, file)
    parts = [one.headers["content-range"] for one in registry.requests("PATCH")]
    assert parts[:2] == ["0-999999", "1000000-1999999"]
    assert not [one for one in registry.requests("GET") if "/uploads/" in one.path]
