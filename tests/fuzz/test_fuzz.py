"""The target of `make fuzz`, for a few seconds with a fixed seed, so that it is known to work."""

from pathlib import Path
from random import Random

import pytest

from tests.fuzz import fuzz
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS, Broken

INPUTS = {"core": 1500, "stdio": 600, "http": 300, "acp": 400, "control": 400, "tasks": 300}


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_no_input_breaks_it(name: str) -> None:
    target = TARGETS[name](Random(1))
    mutator = Mutator(20260728, target.valid)
    fed = 0
    try:
        for _ in range(INPUTS[name] // target.group):
            target.feed([mutator.next() for _ in range(target.group)])  # raises Broken
            fed += target.group
    finally:
        target.close()
    assert fed == INPUTS[name]


def test_the_same_seed_makes_the_same_inputs() -> None:
    first, second, other = Mutator(7), Mutator(7), Mutator(8)
    inputs = [first.next() for _ in range(200)]
    assert inputs == [second.next() for _ in range(200)]
    assert inputs != [other.next() for _ in range(200)]
    assert len(set(inputs)) > 150


def test_a_failure_is_found_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fragile:
        name = "core"
        group = 10
        valid = ()

        def __init__(self, random: Random) -> None:
            pass

        def feed(self, inputs: list[bytes]) -> None:
            for body in inputs:
                if b"\\" in body:
                    raise Broken("a backslash", [body])

        def close(self) -> None:
            pass

    monkeypatch.setitem(TARGETS, "core", Fragile)
    _, failed = fuzz.one_round("core", 1, 10, tmp_path)
    assert failed == 1
    (kept,) = tmp_path.iterdir()
    assert b"\\" in kept.read_bytes()
    assert fuzz.replay(tmp_path, ["core"]) == 1
