"""The real model: its files are checked, and its vectors mean something."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from portico.gateway.search import embedding_model
from portico.gateway.search.embedding_model import MODEL, TOKENIZER, EmbeddingModel, NoModel, load
from portico.gateway.search.vectors import Vectors
from portico.search import ToolIndex
from tests.gateway.search.tools import TOOLS

pytestmark = pytest.mark.xdist_group("search-model")


@pytest.fixture(scope="module")
def real() -> EmbeddingModel:
    return load()


def test_near_meanings_are_near(real: EmbeddingModel) -> None:
    mail, letter, rain = real.embed(["send an email", "write a message to a friend", "rain today"])
    assert mail @ letter > mail @ rain + 0.2
    assert np.allclose(np.linalg.norm([mail, letter, rain], axis=1), 1, atol=1e-3)


def test_a_vector_does_not_depend_on_what_stands_beside_it(real: EmbeddingModel) -> None:
    alone = real.embed(["send an email"])[0]
    beside = real.embed(["send an email", "a much longer text about nothing at all " * 9])[0]
    assert alone @ beside > 0.999


@pytest.mark.parametrize("text", ["", "\0", "\ud800", "图片", "x" * 100_000])
def test_any_text_has_a_vector(real: EmbeddingModel, text: str) -> None:
    assert np.isfinite(real.embed([text])).all()


def test_meaning_finds_a_tool_that_shares_no_word_with_the_query(real: EmbeddingModel) -> None:
    vectors = Vectors(report=print, model=lambda: real)
    vectors.use(ToolIndex.build(TOOLS), lambda: TOOLS)
    vectors.wait()
    assert vectors.space is not None
    assert vectors.space.search("will I need an umbrella tomorrow", 1)[0].name == "forecast"


def test_a_model_in_a_folder_is_one_too(tmp_path: Path) -> None:
    for name, path in embedding_model.in_packages().items():
        shutil.copy(path, tmp_path / name)
    assert load(str(tmp_path)).name == load().name


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoModel, match="cannot be read"):
        load(str(tmp_path))
    (tmp_path / MODEL).write_bytes(b"no model")
    (tmp_path / TOKENIZER).write_text("{}")
    with pytest.raises(NoModel, match="does not contain a usable model"):
        load(str(tmp_path))


def test_another_file_than_expected_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(embedding_model.DIGESTS, MODEL, "0" * 64)
    with pytest.raises(NoModel, match="is damaged; run"):
        load()


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(embedding_model.PLACES, MODEL, ("no_such_package_here", ""))
    with pytest.raises(NoModel, match=r"portico\[vectors\]"):
        load()
